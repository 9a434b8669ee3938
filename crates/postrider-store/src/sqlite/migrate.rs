//! Bringing a database's schema up to date.
//!
//! All missing versions run in one transaction that holds the write lock, and SQLite's DDL is transactional: two
//! processes do not meet, a failure half way leaves nothing behind, and a second run does nothing.

use postrider_core::store::StoreError;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection, SqlitePool};

use super::error::for_relay;
use super::settings;
use super::statements::render;
use crate::layout::Layout;
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

const AUDIT: Migration =
    Migration { version: 3, name: "audit", template: include_str!("../../sql/sqlite/migrations/0003_audit.sql") };

/// A version is the same thing on every database, so there is no second one here: SQLite has no functions for producers.
const MIGRATIONS: [Migration; 4] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/sqlite/migrations/0001_outbox.sql") },
    AUDIT,
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

/// The version of our own schema that this library writes and reads.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// A version that makes a table, or what a table needs.
const fn made(version: i32, name: &'static str, template: &'static str) -> Migration {
    Migration { version, name, template }
}

/// The version of a known layout that makes its table. A table that is there already is taken as it is.
const TABLE: i32 = 1;
/// The version that adds columns. A table that has them already is taken as it is.
const COLUMNS: i32 = 2;

/// The versions of a layout: its table, if it is one that we know, the audit table, and what the clock is noted in.
fn versions(layout: &Layout) -> Vec<Migration> {
    let table = |template| vec![made(TABLE, "table", template)];
    let mut all = match &*layout.name {
        _ if layout.is_ours() => return MIGRATIONS.to_vec(),
        "modkit" => table(include_str!("../../sql/sqlite/layouts/modkit.sql")),
        "talkie" => table(include_str!("../../sql/sqlite/layouts/talkie.sql")),
        "debezium_keep" => vec![
            made(TABLE, "table", include_str!("../../sql/sqlite/layouts/debezium.sql")),
            made(COLUMNS, "columns", include_str!("../../sql/sqlite/layouts/debezium_keep.sql")),
        ],
        _ => Vec::new(),
    };
    all.extend([AUDIT, made(4, "clock", include_str!("../../sql/sqlite/layouts/clock.sql"))]);
    all
}

/// Whether columns are added to a table that may be somebody else's.
pub(super) fn adds_columns(layout: &Layout) -> bool {
    !layout.is_ours() && versions(layout).iter().any(|migration| migration.version == COLUMNS)
}

fn latest(all: &[Migration]) -> i32 {
    all.last().map_or(0, |migration| migration.version)
}

/// The SQL of all versions, for teams that run their migrations with a tool of their own. It notes the versions as
/// [`run`] does, so that the two go together.
pub fn script(layout: &Layout) -> String {
    let all = versions(layout);
    let parts = all.iter().map(|migration| text(&layout.names, migration));
    std::iter::once(render(&layout.names, VERSIONS, &[])).chain(parts).collect::<Vec<_>>().join("\n")
}

/// A version as SQL text, with its note.
fn text(names: &Names, Migration { version, name, template }: &Migration) -> String {
    let note = format!("insert into {{migrations}} (version, name) values ({version}, '{name}');");
    format!("-- {version:04} {name}\n{}\n{}\n", render(names, template, &[]), render(names, &note, &[]))
}

/// What [`run`] would run now. Reads only.
pub async fn pending(pool: &SqlitePool, layout: &Layout) -> Result<Vec<Pending>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    settings::names_are_plain(names)?;
    let failed = |error| for_relay("read the schema's versions", error);
    let mut connection = pool.acquire().await.map_err(failed)?;
    let table = format!("{}migrations", names.prefix());
    let there: bool = sqlx::query_scalar("select count(*) > 0 from sqlite_schema where type = 'table' and name = ?1")
        .bind(table)
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
    let mut done = if there { applied(&mut connection, names).await.map_err(failed)? } else { Vec::new() };
    refuse_newer(&done, latest(&all), &format!("the outbox {:?}", names.table()))?;
    done.extend(there_already(&mut connection, layout, &all).await.map_err(failed)?);
    let before = if there { String::new() } else { render(names, &format!("{VERSIONS}\n\n"), &[]) };
    Ok(list(&all, &done, before, |migration| text(names, migration)))
}

/// The versions that a table which somebody else made has without us.
async fn there_already(
    connection: &mut SqliteConnection,
    layout: &Layout,
    all: &[Migration],
) -> Result<Vec<i32>, sqlx::Error> {
    if layout.is_ours() {
        return Ok(Vec::new());
    }
    let sql = "select name from pragma_table_info(?1)";
    let found: Vec<String> =
        sqlx::query_scalar(sql).persistent(false).bind(layout.names.table()).fetch_all(connection).await?;
    let complete =
        layout.columns().iter().all(|(_, column)| found.iter().any(|name| name.eq_ignore_ascii_case(&column.name)));
    let there = [(TABLE, !found.is_empty()), (COLUMNS, complete)];
    let known = |version: i32| all.iter().any(|migration| migration.version == version);
    Ok(there.into_iter().filter(|(version, is)| *is && known(*version)).map(|(version, _)| version).collect())
}

/// The table of versions that were run.
const VERSIONS: &str = "create table if not exists {migrations} (
  version    integer primary key,
  name       text    not null,
  applied_at text    not null default (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
);";

/// Runs what is missing and answers which versions that were.
pub async fn run(pool: &SqlitePool, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    settings::names_are_plain(&layout.names)?;
    let mut connection = pool.acquire().await.map_err(failed)?;
    run_on(&mut connection, layout).await
}

async fn run_on(connection: &mut SqliteConnection, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    let mut transaction = connection.begin_with("begin immediate").await.map_err(failed)?;
    run_sql(&mut transaction, render(names, VERSIONS, &[])).await.map_err(failed)?;
    let mut done = applied(&mut transaction, names).await.map_err(failed)?;
    refuse_newer(&done, latest(&all), &format!("the outbox {:?}", names.table()))?;
    done.extend(there_already(&mut transaction, layout, &all).await.map_err(failed)?);
    let mut ran = Vec::new();
    for migration in all.iter().filter(|migration| !done.contains(&migration.version)) {
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
