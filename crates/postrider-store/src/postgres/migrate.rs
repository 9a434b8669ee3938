//! Bringing a database's schema up to date.
//!
//! All missing versions run in one transaction under an advisory lock, and PostgreSQL's DDL is transactional:
//! two processes do not meet, a failure half way leaves nothing behind, and a second run does nothing.

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row};

use postrider_core::store::StoreError;

use super::error::for_relay;
use super::statements::{bell, render, schema};
use crate::layout::{AGGREGATE_TYPES, EVENT_TYPES, Layout};
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

const AUDIT: Migration =
    Migration { version: 3, name: "audit", template: include_str!("../../sql/postgres/migrations/0003_audit.sql") };

const MIGRATIONS: [Migration; 7] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/postgres/migrations/0001_outbox.sql") },
    Migration {
        version: 2,
        name: "enqueue_function",
        template: include_str!("../../sql/postgres/migrations/0002_enqueue_function.sql"),
    },
    AUDIT,
    Migration {
        version: 4,
        name: "order_by_key",
        template: include_str!("../../sql/postgres/migrations/0004_order_by_key.sql"),
    },
    Migration {
        version: 5,
        name: "changelog",
        template: include_str!("../../sql/postgres/migrations/0005_changelog.sql"),
    },
    Migration {
        version: 6,
        name: "hidden_keys",
        template: include_str!("../../sql/postgres/migrations/0006_hidden_keys.sql"),
    },
    Migration {
        version: 7,
        name: "key_room",
        template: include_str!("../../sql/postgres/migrations/0007_key_room.sql"),
    },
];

/// The version of our own schema that this library writes and reads.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// A version that makes a table, or what a table needs.
const fn made(version: i32, name: &'static str, template: &'static str) -> Migration {
    Migration { version, name, template }
}

/// The versions of a layout: its table, if it is one that we know, and the audit table.
fn versions(layout: &Layout) -> Vec<Migration> {
    let table = |template| vec![made(TABLE, "table", template), AUDIT];
    match &*layout.name {
        "modkit" => table(include_str!("../../sql/postgres/layouts/modkit.sql")),
        "talkie" => table(include_str!("../../sql/postgres/layouts/talkie.sql")),
        "packfinderz" => table(include_str!("../../sql/postgres/layouts/packfinderz.sql")),
        "valinor" => table(include_str!("../../sql/postgres/layouts/valinor.sql")),
        "debezium" => table(include_str!("../../sql/postgres/layouts/debezium.sql")),
        "debezium_keep" => vec![
            made(TABLE, "table", include_str!("../../sql/postgres/layouts/debezium.sql")),
            made(COLUMNS, "columns", include_str!("../../sql/postgres/layouts/debezium_keep.sql")),
            AUDIT,
        ],
        _ if layout.is_ours() => MIGRATIONS.to_vec(),
        _ => vec![AUDIT],
    }
}

/// The version of a known layout that makes its table. A table that is there already is taken as it is.
const TABLE: i32 = 1;
/// The version that adds columns. A table that has them already is taken as it is.
const COLUMNS: i32 = 2;

/// Columns are added to a table that producers write to: while the change waits for its lock, all others wait behind it.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '2s'";

/// The SQL of all versions, for teams that run their migrations with a tool of their own. It notes the versions as
/// [`run`] does, so that the two go together.
pub fn script(layout: &Layout) -> String {
    let all = versions(layout);
    let parts = all.iter().map(|migration| text(&layout.names, migration));
    let versions = format!("create schema if not exists {{schema}};\n{VERSIONS}\n");
    std::iter::once(render(&layout.names, &versions, &[])).chain(parts).collect::<Vec<_>>().join("\n")
}

/// A version's own SQL.
fn body(names: &Names, template: &str) -> String {
    let list = |words: &[&str]| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let (events, aggregates) = (list(&EVENT_TYPES), list(&AGGREGATE_TYPES));
    render(names, template, &[("{event_types}", &events), ("{aggregate_types}", &aggregates)])
}

/// A version as SQL text, with its note.
fn text(names: &Names, Migration { version, name, template }: &Migration) -> String {
    let note = format!("insert into {{migrations}} (version, name) values ({version}, '{name}');");
    format!("-- {version:04} {name}\n{}\n{}\n", body(names, template), render(names, &note, &[]))
}

/// What [`run`] would run now. Reads only.
pub async fn pending(pool: &PgPool, layout: &Layout) -> Result<Vec<Pending>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    let failed = |error| for_relay("read the schema's versions", error);
    let mut transaction = pool.begin().await.map_err(failed)?;
    let (schema_exists, table_exists) = there(&mut transaction, names).await.map_err(failed)?;
    let mut done = match table_exists {
        true => applied(&mut transaction, names).await.map_err(failed)?,
        false => Vec::new(),
    };
    done.extend(there_already(&mut transaction, layout).await.map_err(failed)?);
    transaction.rollback().await.map_err(failed)?;
    refuse_newer(&done, latest(&all), &format!("schema {:?}", schema(names)))?;
    let schema = if schema_exists { "" } else { "create schema {schema};\n" };
    let before = if table_exists { String::new() } else { render(names, &format!("{schema}{VERSIONS}\n\n"), &[]) };
    Ok(list(&all, &done, before, |migration| text(names, migration)))
}

/// Whether columns are added to a table that may be somebody else's.
pub(super) fn adds_columns(layout: &Layout) -> bool {
    !layout.is_ours() && versions(layout).iter().any(|migration| migration.version == COLUMNS)
}

fn latest(all: &[Migration]) -> i32 {
    all.last().map_or(0, |migration| migration.version)
}

/// The versions that a table which somebody else made has without us.
async fn there_already(connection: &mut PgConnection, layout: &Layout) -> Result<Vec<i32>, sqlx::Error> {
    if layout.is_ours() {
        return Ok(Vec::new());
    }
    let columns: Vec<String> = layout.columns().into_iter().map(|(_, column)| column.name.clone()).collect();
    let sql = "select exists (select from pg_class where relname = $2 and relnamespace = (select oid from pg_namespace where nspname = $1)), \
               not exists (select from unnest($3::text[]) as wanted where not exists (select from information_schema.columns \
               where table_schema = $1 and table_name = $2 and column_name = wanted))";
    let (table, complete): (bool, bool) = sqlx::query_as(sql)
        .persistent(false)
        .bind(schema(&layout.names))
        .bind(layout.names.table())
        .bind(columns)
        .fetch_one(connection)
        .await?;
    let there = [(TABLE, table), (COLUMNS, complete)];
    let versions = versions(layout);
    let known = |version: i32| versions.iter().any(|migration| migration.version == version);
    Ok(there.into_iter().filter(|(version, is)| *is && known(*version)).map(|(version, _)| version).collect())
}

/// Whether the schema and the table of versions are there.
async fn there(connection: &mut PgConnection, names: &Names) -> Result<(bool, bool), sqlx::Error> {
    sqlx::query_as(
        "select exists (select from pg_namespace where nspname = $1), exists (select from pg_class \
         where relname = $2 and relnamespace = (select oid from pg_namespace where nspname = $1))",
    )
    .persistent(false)
    .bind(schema(names))
    .bind(format!("{}migrations", names.prefix()))
    .fetch_one(connection)
    .await
}

/// The table of versions that were run.
const VERSIONS: &str = "create table if not exists {migrations} (
  version int primary key,
  name text not null,
  applied_at timestamptz not null default now()
);";

/// Runs what is missing and answers which versions that were.
pub async fn run(pool: &PgPool, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    let mut connection = pool.acquire().await.map_err(failed)?;
    run_on(&mut connection, layout).await
}

async fn run_on(connection: &mut PgConnection, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    let mut transaction = connection.begin().await.map_err(failed)?;
    lock(&mut transaction, names).await.map_err(failed)?;
    prepare(&mut transaction, names).await.map_err(failed)?;
    let mut done = applied(&mut transaction, names).await.map_err(failed)?;
    refuse_newer(&done, latest(&all), &format!("schema {:?}", schema(names)))?;
    done.extend(there_already(&mut transaction, layout).await.map_err(failed)?);
    let mut ran = Vec::new();
    for migration in all.iter().filter(|migration| !done.contains(&migration.version)) {
        if !layout.is_ours() && migration.version == COLUMNS {
            sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *transaction).await.map_err(failed)?;
        }
        apply(&mut transaction, names, migration).await.map_err(failed)?;
        ran.push(migration.version);
    }
    transaction.commit().await.map_err(failed)?;
    Ok(ran)
}

fn failed(error: sqlx::Error) -> StoreError {
    for_relay("migrate", error)
}

pub(super) async fn lock(connection: &mut PgConnection, names: &Names) -> Result<(), sqlx::Error> {
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .persistent(false)
        .bind(format!("{} migrate", bell(names)))
        .execute(connection)
        .await?;
    Ok(())
}

/// Makes the schema and the table of versions. `create schema if not exists` wants a privilege even when the
/// schema is there, so it is looked for first.
async fn prepare(connection: &mut PgConnection, names: &Names) -> Result<(), sqlx::Error> {
    let (exists, _) = there(connection, names).await?;
    let schema = if exists { "" } else { "create schema {schema};\n" };
    let template = format!("{schema}{VERSIONS}");
    sqlx::raw_sql(AssertSqlSafe(render(names, &template, &[]))).execute(connection).await?;
    Ok(())
}

async fn applied(connection: &mut PgConnection, names: &Names) -> Result<Vec<i32>, sqlx::Error> {
    let sql = render(names, "select version from {migrations}", &[]);
    let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn apply(connection: &mut PgConnection, names: &Names, migration: &Migration) -> Result<(), sqlx::Error> {
    tracing::info!(version = migration.version, name = migration.name, schema = schema(names), "migrating the outbox");
    sqlx::raw_sql(AssertSqlSafe(body(names, migration.template))).execute(&mut *connection).await?;
    let record = render(names, "insert into {migrations} (version, name) values ($1, $2)", &[]);
    sqlx::query(AssertSqlSafe(record))
        .persistent(false)
        .bind(migration.version)
        .bind(migration.name)
        .execute(connection)
        .await?;
    Ok(())
}
