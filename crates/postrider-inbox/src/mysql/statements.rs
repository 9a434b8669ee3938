//! MySQL's and MariaDB's SQL.

use crate::sql::Templates;

pub(super) const TEMPLATES: Templates = Templates {
    enter: include_str!("../../sql/mysql/enter.sql"),
    held: ["/*M! set statement innodb_lock_wait_timeout = 0 for */ ", ""],
    newest: include_str!("../../sql/mysql/newest.sql"),
    leave: include_str!("../../sql/mysql/leave.sql"),
    there: include_str!("../../sql/mysql/there.sql"),
    confirm: include_str!("../../sql/mysql/confirm.sql"),
    ours: include_str!("../../sql/mysql/ours.sql"),
    undone: Some(include_str!("../../sql/mysql/undone.sql")),
    note: include_str!("../../sql/mysql/note.sql"),
    purge: include_str!("../../sql/mysql/purge.sql"),
    before_purge: Some(include_str!("../../sql/mysql/before_purge.sql")),
    create: &[include_str!("../../sql/mysql/create_messages.sql"), include_str!("../../sql/mysql/create_attempts.sql")],
    quote: '`',
    schema: None,
    now: "utc_timestamp(6)",
};
