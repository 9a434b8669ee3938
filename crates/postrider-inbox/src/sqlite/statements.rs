//! SQLite's SQL.

use crate::sql::Templates;

pub(super) const TEMPLATES: Templates = Templates {
    enter: include_str!("../../sql/sqlite/enter.sql"),
    held: ["", ""],
    newest: include_str!("../../sql/sqlite/newest.sql"),
    leave: include_str!("../../sql/sqlite/leave.sql"),
    there: include_str!("../../sql/sqlite/there.sql"),
    confirm: include_str!("../../sql/sqlite/confirm.sql"),
    ours: include_str!("../../sql/sqlite/ours.sql"),
    undone: None,
    note: include_str!("../../sql/sqlite/note.sql"),
    purge: include_str!("../../sql/sqlite/purge.sql"),
    before_purge: None,
    create: &[
        include_str!("../../sql/sqlite/create_messages.sql"),
        include_str!("../../sql/sqlite/create_messages_index.sql"),
        include_str!("../../sql/sqlite/create_attempts.sql"),
        include_str!("../../sql/sqlite/create_attempts_index.sql"),
    ],
    quote: '"',
    schema: None,
    now: "cast((julianday('now') - 2440587.5) * 86400000000 as integer)",
};
