//! Every privilege of every role on everything that Postrider makes: what is not in the list is held by nobody.

use std::collections::BTreeSet;

use anyhow::Result;
use sqlx::PgPool;

use crate::scene::Scene;

/// What a role may do: a verb, on what, and with which columns; `*` is all of them. Nobody may anything else.
const ALLOWED: [(&str, &str, &str, &str); 25] = [
    (
        "app",
        "insert",
        "outbox_messages",
        "id namespace topic key tenant_id dedupe_key payload payload_bytes headers next_attempt_at max_attempts",
    ),
    ("app", "select", "outbox_messages", "id namespace topic dedupe_key"),
    ("app", "execute", "postrider_enqueue", ""),
    ("app", "execute", "postrider_uuid_v7", ""),
    ("relay", "select", "outbox_messages", "*"),
    ("relay", "delete", "outbox_messages", ""),
    ("relay", "update", "outbox_messages", RELAY_CHANGES),
    ("relay", "select", "postrider_migrations", "*"),
    ("relay", "select", "postrider_settings", "*"),
    ("relay", "select", "postrider_changelog", "*"),
    ("relay", "select", "postrider_cursors", "*"),
    ("relay", "insert", "postrider_cursors", "*"),
    ("relay", "update", "postrider_cursors", "*"),
    ("relay", "delete", "postrider_cursors", ""),
    ("operator", "select", "outbox_messages", "*"),
    ("operator", "delete", "outbox_messages", ""),
    ("operator", "update", "outbox_messages", OPERATOR_CHANGES),
    ("operator", "select", "postrider_migrations", "*"),
    ("operator", "select", "postrider_audit", "*"),
    ("operator", "insert", "postrider_audit", "*"),
    ("operator", "select", "postrider_settings", "*"),
    ("operator", "select", "postrider_changelog", "*"),
    ("operator", "select", "postrider_cursors", "*"),
    ("operator", "update", "postrider_cursors", "*"),
    ("operator", "delete", "postrider_cursors", ""),
];
const RELAY_CHANGES: &str = "status attempts next_attempt_at locked_by locked_until last_error updated_at delivered_at";
const OPERATOR_CHANGES: &str =
    "status attempts next_attempt_at locked_by locked_until last_error updated_at delivered_at headers";
const OF_READER: [(&str, &str, &str, &str); 3] = [
    (
        "reader",
        "select",
        "outbox_messages",
        "id seq namespace topic key tenant_id dedupe_key headers status attempts max_attempts next_attempt_at locked_by \
         locked_until last_error created_at updated_at delivered_at",
    ),
    ("reader", "select", "postrider_migrations", "*"),
    ("reader", "select", "postrider_audit", "*"),
];

/// All that there is: each thing with a verb, and a column where the verb may be given by column. $1 is a role, or null for all.
const HELD: &str = "
    with verbs as (
      select table_name::text as thing, verb, '' as column_name, has_table_privilege($1, format('%I.%I', table_schema, table_name), verb) as held
      from information_schema.tables cross join unnest(array['delete', 'truncate', 'trigger']) as verb
      where table_schema = 'public'
      union all
      select table_name, verb, column_name, has_column_privilege($1, format('%I.%I', table_schema, table_name), column_name, verb)
      from information_schema.columns cross join unnest(array['select', 'insert', 'update', 'references']) as verb
      where table_schema = 'public'
      union all
      -- information_schema leaves out the sequences of identity columns
      select relname, verb, '', has_sequence_privilege($1, pg_class.oid, verb)
      from pg_class cross join unnest(array['usage', 'select', 'update']) as verb
      where relkind = 'S' and relnamespace = 'public'::regnamespace
      union all
      select routine.proname, 'execute', '', has_function_privilege($1, routine.oid, 'execute')
      from pg_proc as routine where pronamespace = 'public'::regnamespace
      union all
      select 'public', 'create', '', has_schema_privilege($1, 'public', 'create')
    )
    select thing || ' ' || verb || ' ' || column_name from verbs where held or $2";

async fn held(admin: &PgPool, role: &str, all: bool) -> Result<BTreeSet<String>> {
    let rows: Vec<String> = sqlx::query_scalar(HELD).bind(role).bind(all).fetch_all(admin).await?;
    Ok(rows.into_iter().map(|line| line.trim_end().to_owned()).collect())
}

/// The list for one role, with its stars written out.
fn allowed(role: &str, everything: &BTreeSet<String>) -> BTreeSet<String> {
    let lines = ALLOWED.iter().chain(&OF_READER).filter(|(of, ..)| *of == role);
    let write = |(_, verb, thing, columns): &(&str, &str, &str, &str)| -> Vec<String> {
        let begins = format!("{thing} {verb}");
        match *columns {
            "" => vec![begins],
            "*" => everything.iter().filter(|line| line.starts_with(&format!("{begins} "))).cloned().collect(),
            columns => columns.split_whitespace().map(|column| format!("{begins} {column}")).collect(),
        }
    };
    lines.flat_map(write).collect()
}

#[tokio::test]
async fn s23_nobody_holds_a_privilege_that_is_not_in_the_list() -> Result<()> {
    let scene = Scene::protected().await?;
    let reader = scene.roles.reader().expect("a reader");
    let roles = [
        ("app", scene.roles.producer()),
        ("relay", scene.roles.relay()),
        ("operator", scene.roles.operator()),
        ("reader", reader),
    ];
    let everything = held(&scene.admin, scene.owner(), true).await?;
    assert!(everything.contains("outbox_messages_seq_seq update") && everything.contains("postrider_audit insert ids"));
    for (role, name) in roles {
        let allowed = allowed(role, &everything);
        assert!(allowed.is_subset(&everything), "{role}: {:#?}", allowed.difference(&everything).collect::<Vec<_>>());
        assert_eq!(held(&scene.admin, name, false).await?, allowed, "{role}");
    }
    let owner: BTreeSet<String> = held(&scene.admin, scene.owner(), false).await?;
    assert_eq!(owner, everything, "the owner may all of it, and is shown no row");
    Ok(())
}
