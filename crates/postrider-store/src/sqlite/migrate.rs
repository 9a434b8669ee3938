//! Bringing a database's schema up to date.
//!
//! All missing versions run in one transaction that holds the write lock, and SQLite's DDL is transactional: two
//! processes do not meet, a failure half way leaves nothing behind, and a second run does nothing.

use postrider_core::store::StoreError;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection, SqlitePool};

use super::error::for_relay;
use super::settings;
use super::statements::render;
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

/// A version is the same thing on every database, so there is no second one here: SQLite has no functions for producers.
const MIGRATIONS: [Migration; 4] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/sqlite/migrations/0001_outbox.sql") },
    Migration { version: 3, name: "audit", template: include_str!("../../sql/sqlite/migrations/0003_audit.sql") },
    Migration {
        version: 4,
        name: "order_by_key",
        template: include_str!("../../sql/sqlite/migrations/0004_order_by_key.sql"),
    },
    Migration {
        version: 5,
        name: "changelog",
        template: include_str!("../../sql/sqlite/migrations/0005_changelog.sql"),
    },
];

/// The version of the schema that this library writes and reads.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The SQL of all versions, for teams that run their migrations with a tool of their own. It notes the versions as
/// [`run`] does, so that the two go together.
pub fn script(names: &Names) -> String {
    let parts = MIGRATIONS.iter().map(|migration| text(names, migration));
    std::iter::once(render(names, VERSIONS, &[])).chain(parts).collect::<Vec<_>>().join("\n")
}

/// A version as SQL text, with its note.
fn text(names: &Names, Migration { version, name, template }: &Migration) -> String {
    let note = format!("insert into {{migrations}} (version, name) values ({version}, '{name}');");
    format!("-- {version:04} {name}\n{}\n{}\n", render(names, template, &[]), render(names, &note, &[]))
}

/// What [`run`] would run now. Reads only.
pub async fn pending(pool: &SqlitePool, names: &Names) -> Result<Vec<Pending>, StoreError> {
    settings::names_are_plain(names)?;
    let failed = |error| for_relay("read the schema's versions", error);
    let mut connection = pool.acquire().await.map_err(failed)?;
    let table = format!("{}migrations", names.prefix());
    let there: bool = sqlx::query_scalar("select count(*) > 0 from sqlite_schema where type = 'table' and name = ?1")
        .bind(table)
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
    let applied = if there { applied(&mut connection, names).await.map_err(failed)? } else { Vec::new() };
    refuse_newer(&applied, LATEST, &format!("the outbox {:?}", names.table()))?;
    let before = if there { String::new() } else { render(names, &format!("{VERSIONS}\n\n"), &[]) };
    Ok(list(&MIGRATIONS, &applied, before, |migration| text(names, migration)))
}

/// The table of versions that were run.
const VERSIONS: &str = "create table if not exists {migrations} (
  version    integer primary key,
  name       text    not null,
  applied_at text    not null default (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
);";

/// Runs what is missing and answers which versions that were.
pub async fn run(pool: &SqlitePool, names: &Names) -> Result<Vec<i32>, StoreError> {
    settings::names_are_plain(names)?;
    let mut connection = pool.acquire().await.map_err(failed)?;
    run_on(&mut connection, names).await
}

async fn run_on(connection: &mut SqliteConnection, names: &Names) -> Result<Vec<i32>, StoreError> {
    let mut transaction = connection.begin_with("begin immediate").await.map_err(failed)?;
    run_sql(&mut transaction, render(names, VERSIONS, &[])).await.map_err(failed)?;
    let applied = applied(&mut transaction, names).await.map_err(failed)?;
    refuse_newer(&applied, LATEST, &format!("the outbox {:?}", names.table()))?;
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

async fn run_sql(connection: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

async fn applied(connection: &mut SqliteConnection, names: &Names) -> Result<Vec<i32>, sqlx::Error> {
    let sql = render(names, "select version from {migrations}", &[]);
    let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn apply(connection: &mut SqliteConnection, names: &Names, migration: &Migration) -> Result<(), sqlx::Error> {
    tracing::info!(version = migration.version, name = migration.name, table = names.table(), "migrating the outbox");
    run_sql(connection, render(names, migration.template, &[])).await?;
    let record = render(names, "insert into {migrations} (version, name) values (?1, ?2)", &[]);
    sqlx::query(AssertSqlSafe(record))
        .persistent(false)
        .bind(migration.version)
        .bind(migration.name)
        .execute(connection)
        .await?;
    Ok(())
}
