//! Every index of the migrations is there, is valid, and is about the rows and columns that it should be about.

use postrider_core::operate::Finding;
use sqlx::Row;

use super::PostgresStore;
use crate::postgres::statements::schema;

/// An index as the catalog should have it.
struct Expected {
    suffix: &'static str,
    unique: bool,
    columns: &'static [&'static str],
    predicate: Option<&'static str>,
    /// What `create index` says after the table's name.
    text: &'static str,
    /// What it is for.
    purpose: &'static str,
}

const PENDING: Option<&str> = Some("(status = 'pending'::text)");
/// A tenant, or the nil UUID for rows without one, as the catalog tells it.
const TENANT_OR_NIL: &str = "COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid)";

const EXPECTED: [Expected; 7] = [
    Expected {
        suffix: "pkey",
        unique: true,
        columns: &["id"],
        predicate: None,
        text: "(id)",
        purpose: "settles and operators find rows by it",
    },
    Expected {
        suffix: "due_idx",
        unique: false,
        columns: &["namespace", "next_attempt_at", "seq"],
        predicate: PENDING,
        text: "(namespace, next_attempt_at, seq) where status = 'pending'",
        purpose: "claims find due rows by it, and read the whole table without it",
    },
    Expected {
        suffix: "lane_idx",
        unique: false,
        columns: &["namespace", "topic", TENANT_OR_NIL, "next_attempt_at", "seq"],
        predicate: PENDING,
        text: "(namespace, topic, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), next_attempt_at, seq) where status = 'pending'",
        purpose: "fair claims find their lanes by it",
    },
    Expected {
        suffix: "lease_idx",
        unique: false,
        columns: &["locked_until"],
        predicate: Some("(status = 'processing'::text)"),
        text: "(locked_until) where status = 'processing'",
        purpose: "leases that ran out are found by it",
    },
    Expected {
        suffix: "key_idx",
        unique: false,
        columns: &["namespace", "key", TENANT_OR_NIL, "seq"],
        predicate: Some("((status = ANY (ARRAY['pending'::text, 'processing'::text])) AND (key IS NOT NULL))"),
        text: "(namespace, key, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq) where status in ('pending', 'processing') and key is not null",
        purpose: "claims with order per key find by it what a message waits for",
    },
    Expected {
        suffix: "finished_idx",
        unique: false,
        columns: &["status", "updated_at"],
        predicate: Some("(status = ANY (ARRAY['delivered'::text, 'dead'::text]))"),
        text: "(status, updated_at) where status in ('delivered', 'dead')",
        purpose: "the purge and lists of dead messages use it",
    },
    Expected {
        suffix: "dedupe_idx",
        unique: true,
        columns: &["namespace", "topic", "dedupe_key"],
        predicate: Some("(dedupe_key IS NOT NULL)"),
        text: "(namespace, topic, dedupe_key) where dedupe_key is not null",
        purpose: "enqueueing fails without it, and keys are not unique",
    },
];

/// An index as the catalog has it.
struct Found {
    name: String,
    usable: bool,
    unique: bool,
    columns: Vec<String>,
    predicate: Option<String>,
}

pub(super) async fn look(store: &PostgresStore) -> Result<Vec<Finding>, sqlx::Error> {
    let sql = store.text(include_str!("../../../sql/postgres/examine_indexes.sql"));
    let rows = store.ask(sql, store.place()?).await?;
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Found {
            name: row.try_get("name")?,
            usable: row.try_get("usable")?,
            unique: row.try_get("is_unique")?,
            columns: row.try_get("columns")?,
            predicate: row.try_get("predicate")?,
        })
    };
    let found = rows.iter().map(read).collect::<Result<Vec<Found>, sqlx::Error>>()?;
    let bad: Vec<Finding> = EXPECTED.iter().filter_map(|expected| compare(store, expected, &found)).collect();
    Ok(match bad.is_empty() {
        true => vec![Finding::fine("index", format!("all {} indexes are there and valid", EXPECTED.len()))],
        false => bad,
    })
}

fn compare(store: &PostgresStore, expected: &Expected, found: &[Found]) -> Option<Finding> {
    const NAME: &str = "index";
    let Expected { suffix, purpose, .. } = expected;
    let (schema, name) = (schema(&store.names), format!("{}_{suffix}", store.names.table()));
    let create = create(store, expected, &name);
    let Some(found) = found.iter().find(|found| found.name == name) else {
        return Some(Finding::problem(
            NAME,
            format!("the index {name} is missing; {purpose}"),
            format!("run: {create}"),
        ));
    };
    if found.unique != expected.unique
        || found.columns != expected.columns
        || found.predicate.as_deref() != expected.predicate
    {
        let what = format!("the index {name} is about other columns or rows than it should be; {purpose}");
        return Some(Finding::problem(NAME, what, format!("run: drop index \"{schema}\".\"{name}\"; {create}")));
    }
    if !found.usable {
        let what = format!("the index {name} is not valid, because building it failed half way; {purpose}");
        return Some(Finding::problem(NAME, what, format!("run: reindex index concurrently \"{schema}\".\"{name}\"")));
    }
    None
}

/// Built beside the traffic, which a plain `create index` would stop.
fn create(store: &PostgresStore, expected: &Expected, name: &str) -> String {
    let text = expected.text;
    if expected.suffix == "pkey" {
        return store.text(&format!("alter table {{table}} add constraint \"{name}\" primary key {text}"));
    }
    let unique = if expected.unique { "unique " } else { "" };
    store.text(&format!("create {unique}index concurrently \"{name}\" on {{table}} {text}"))
}
