//! Bringing a database's schema up to date.
//!
//! All missing versions run in one transaction under an advisory lock, and PostgreSQL's DDL is transactional:
//! two processes do not meet, a failure half way leaves nothing behind, and a second run does nothing.

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row};

use postrider_core::store::StoreError;

use super::error::for_relay;
use super::statements::{bell, render, schema};
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

const MIGRATIONS: [Migration; 5] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/postgres/migrations/0001_outbox.sql") },
    Migration {
        version: 2,
        name: "enqueue_function",
        template: include_str!("../../sql/postgres/migrations/0002_enqueue_function.sql"),
    },
    Migration { version: 3, name: "audit", template: include_str!("../../sql/postgres/migrations/0003_audit.sql") },
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
];

/// The version of the schema that this library writes and reads.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The SQL of all versions, for teams that run their migrations with a tool of their own. It notes the versions as
/// [`run`] does, so that the two go together.
pub fn script(names: &Names) -> String {
    let parts = MIGRATIONS.iter().map(|migration| text(names, migration));
    let versions = format!("create schema if not exists {{schema}};\n{VERSIONS}\n");
    std::iter::once(render(names, &versions, &[])).chain(parts).collect::<Vec<_>>().join("\n")
}

/// A version as SQL text, with its note.
fn text(names: &Names, Migration { version, name, template }: &Migration) -> String {
    let note = format!("insert into {{migrations}} (version, name) values ({version}, '{name}');");
    format!("-- {version:04} {name}\n{}\n{}\n", render(names, template, &[]), render(names, &note, &[]))
}

/// What [`run`] would run now. Reads only.
pub async fn pending(pool: &PgPool, names: &Names) -> Result<Vec<Pending>, StoreError> {
    let failed = |error| for_relay("read the schema's versions", error);
    let mut transaction = pool.begin().await.map_err(failed)?;
    let (schema_exists, table_exists) = there(&mut transaction, names).await.map_err(failed)?;
    let applied = match table_exists {
        true => applied(&mut transaction, names).await.map_err(failed)?,
        false => Vec::new(),
    };
    transaction.rollback().await.map_err(failed)?;
    refuse_newer(&applied, LATEST, &format!("schema {:?}", schema(names)))?;
    let schema = if schema_exists { "" } else { "create schema {schema};\n" };
    let before = if table_exists { String::new() } else { render(names, &format!("{schema}{VERSIONS}\n\n"), &[]) };
    Ok(list(&MIGRATIONS, &applied, before, |migration| text(names, migration)))
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
pub async fn run(pool: &PgPool, names: &Names) -> Result<Vec<i32>, StoreError> {
    let mut connection = pool.acquire().await.map_err(failed)?;
    run_on(&mut connection, names).await
}

async fn run_on(connection: &mut PgConnection, names: &Names) -> Result<Vec<i32>, StoreError> {
    let mut transaction = connection.begin().await.map_err(failed)?;
    lock(&mut transaction, names).await.map_err(failed)?;
    prepare(&mut transaction, names).await.map_err(failed)?;
    let applied = applied(&mut transaction, names).await.map_err(failed)?;
    refuse_newer(&applied, LATEST, &format!("schema {:?}", schema(names)))?;
    let mut ran = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)) {
        apply(&mut transaction, names, migration).await.map_err(failed)?;
        ran.push(migration.version);
    }
    transaction.commit().await.map_err(failed)?;
    Ok(ran)
}

fn failed(error: sqlx::Error) -> StoreError {
    for_relay("migrate", error)
}

async fn lock(connection: &mut PgConnection, names: &Names) -> Result<(), sqlx::Error> {
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
    sqlx::raw_sql(AssertSqlSafe(render(names, migration.template, &[]))).execute(&mut *connection).await?;
    let record = render(names, "insert into {migrations} (version, name) values ($1, $2)", &[]);
    sqlx::query(AssertSqlSafe(record))
        .persistent(false)
        .bind(migration.version)
        .bind(migration.name)
        .execute(connection)
        .await?;
    Ok(())
}
