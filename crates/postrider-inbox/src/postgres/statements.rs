//! PostgreSQL's SQL.

use crate::sql::Templates;

pub(super) const TEMPLATES: Templates = Templates {
    enter: include_str!("../../sql/postgres/enter.sql"),
    held: [
        "pg_try_advisory_xact_lock(hashtextextended('postrider inbox {schema}.{messages_name} ' || $1::text || ' ' || $2::uuid, 0))",
        "true",
    ],
    newest: include_str!("../../sql/postgres/newest.sql"),
    leave: include_str!("../../sql/postgres/leave.sql"),
    there: include_str!("../../sql/postgres/there.sql"),
    confirm: include_str!("../../sql/postgres/confirm.sql"),
    ours: include_str!("../../sql/postgres/ours.sql"),
    undone: None,
    note: include_str!("../../sql/postgres/note.sql"),
    purge: include_str!("../../sql/postgres/purge.sql"),
    before_purge: None,
    create: &[
        include_str!("../../sql/postgres/create_messages.sql"),
        include_str!("../../sql/postgres/create_messages_index.sql"),
        include_str!("../../sql/postgres/create_attempts.sql"),
        include_str!("../../sql/postgres/create_attempts_index.sql"),
    ],
    quote: '"',
    schema: Some("public"),
    now: "now()",
};
