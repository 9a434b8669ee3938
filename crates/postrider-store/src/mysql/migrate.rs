//! Bringing a database's schema up to date.
//!
//! MySQL's DDL is not transactional, so every statement can be run again, and a version is noted after all of its
//! statements: a failure half way is repaired by the next run. A lock of the server keeps two processes apart.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, Row};

use super::error::for_relay;
use super::statements::render;
use crate::layout::Layout;
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

const AUDIT: Migration =
    Migration { version: 3, name: "audit", template: include_str!("../../sql/mysql/migrations/0003_audit.sql") };

const MIGRATIONS: [Migration; 5] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/mysql/migrations/0001_outbox.sql") },
    Migration {
        version: 2,
        name: "enqueue_procedure",
        template: include_str!("../../sql/mysql/migrations/0002_enqueue_procedure.sql"),
    },
    AUDIT,
    Migration {
        version: 4,
        name: "order_by_key",
        template: include_str!("../../sql/mysql/migrations/0004_order_by_key.sql"),
    },
    Migration {
        version: 5,
        name: "changelog",
        template: include_str!("../../sql/mysql/migrations/0005_changelog.sql"),
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

/// The versions of a layout: its table, if it is one that we know, the audit table, and turns for dedupe keys.
fn versions(layout: &Layout) -> Vec<Migration> {
    let table = |template| vec![made(TABLE, "table", template)];
    let mut all = match &*layout.name {
        _ if layout.is_ours() => return MIGRATIONS.to_vec(),
        "modkit" => table(include_str!("../../sql/mysql/layouts/modkit.sql")),
        "talkie" => table(include_str!("../../sql/mysql/layouts/talkie.sql")),
        "debezium_keep" => vec![
            made(TABLE, "table", include_str!("../../sql/mysql/layouts/debezium.sql")),
            made(COLUMNS, "columns", include_str!("../../sql/mysql/layouts/debezium_keep.sql")),
        ],
        _ => Vec::new(),
    };
    all.push(AUDIT);
    all.extend(has_turns(layout).then(|| made(4, "turns", include_str!("../../sql/mysql/layouts/turns.sql"))));
    all
}

/// Whether producers take turns.
fn has_turns(layout: &Layout) -> bool {
    layout.dedupe_key.is_some()
}

/// The version with the table of turns, which are filled in after it.
fn first_turns(layout: &Layout) -> i32 {
    if layout.is_ours() { 1 } else { 4 }
}

/// Whether columns are added to a table that may be somebody else's.
pub(super) fn adds_columns(layout: &Layout) -> bool {
    !layout.is_ours() && versions(layout).iter().any(|migration| migration.version == COLUMNS)
}

fn latest(all: &[Migration]) -> i32 {
    all.last().map_or(0, |migration| migration.version)
}

/// Ends a statement for the programs of the servers; a test looks that no statement holds it.
const DELIMITER: &str = "$$";

/// Stands between the statements of a version.
const BETWEEN: &str = "\n-- next statement\n";

/// How long to wait for another process that migrates, in seconds.
const PATIENCE: i64 = 60;

/// Fills in what is missing of the turns, see the file.
const TURNS: &str = include_str!("../../sql/mysql/turns.sql");

/// The SQL of all versions, one statement each, for teams that run their migrations with a tool of their own: run them in
/// this order, each as one statement (they hold semicolons, so do not split them further; the `mariadb` and `mysql`
/// programs need `delimiter` around the last ones). They note the versions as [`run`] does, so that the two go together,
/// and each can be run again.
pub fn script(layout: &Layout) -> Vec<String> {
    let names = &layout.names;
    let mut script = vec![render(names, VERSIONS, &[])];
    for migration in &versions(layout) {
        script.extend(statements(names, migration));
        script.push(note(names, migration));
    }
    script.extend(has_turns(layout).then(|| render(names, TURNS, &[])));
    script
}

/// [`script`] as one text for the `mysql` and `mariadb` programs, which need to be told where a procedure ends.
pub fn script_text(layout: &Layout) -> String {
    delimited(&script(layout))
}

/// Ends each statement with what none of them holds.
fn delimited(statements: &[String]) -> String {
    let statements = statements.iter().map(|statement| format!("{}\n{DELIMITER}\n", statement.trim_end()));
    format!("delimiter {DELIMITER}\n{}delimiter ;\n", statements.collect::<String>())
}

/// What [`run`] would run now, each version as [`script_text`] writes it. Reads only.
pub async fn pending(pool: &MySqlPool, layout: &Layout) -> Result<Vec<Pending>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    let failed = |error| for_relay("read the schema's versions", error);
    let mut connection = pool.acquire().await.map_err(failed)?;
    let there: i64 = sqlx::query_scalar(
        "select count(*) from information_schema.tables where table_schema = coalesce(?, database()) and table_name = ?",
    )
    .persistent(false)
    .bind(names.schema())
    .bind(format!("{}migrations", names.prefix()))
    .fetch_one(&mut *connection)
    .await
    .map_err(failed)?;
    let mut done = if there > 0 { applied(&mut connection, names).await.map_err(failed)? } else { Vec::new() };
    refuse_newer(&done, latest(&all), &format!("the outbox {:?}", names.table()))?;
    done.extend(there_already(&mut connection, layout, &all).await.map_err(failed)?);
    let before = if there > 0 { String::new() } else { delimited(&[render(names, VERSIONS, &[])]) };
    Ok(list(&all, &done, before, |migration| {
        let mut statements = statements(names, migration);
        statements.push(note(names, migration));
        if has_turns(layout) && migration.version == first_turns(layout) {
            statements.push(render(names, TURNS, &[]));
        }
        delimited(&statements)
    }))
}

/// The versions that a table which somebody else made has without us.
async fn there_already(
    connection: &mut MySqlConnection,
    layout: &Layout,
    all: &[Migration],
) -> Result<Vec<i32>, sqlx::Error> {
    if layout.is_ours() {
        return Ok(Vec::new());
    }
    let sql = "select cast(column_name as char) from information_schema.columns \
               where table_schema = coalesce(?, database()) and table_name = ?";
    let query = sqlx::query_scalar(sql).persistent(false).bind(layout.names.schema()).bind(layout.names.table());
    let found: Vec<String> = query.fetch_all(connection).await?;
    let is_there = |name: &str| found.iter().any(|found| found.eq_ignore_ascii_case(name));
    let complete = layout.columns().iter().all(|(_, column)| is_there(&column.name));
    let there = [(TABLE, !found.is_empty()), (COLUMNS, complete)];
    let known = |version: i32| all.iter().any(|migration| migration.version == version);
    Ok(there.into_iter().filter(|(version, is)| *is && known(*version)).map(|(version, _)| version).collect())
}

/// The table of versions that were run.
const VERSIONS: &str = "create table if not exists {migrations} (
  version    int          not null primary key,
  name       varchar(200) character set ascii not null,
  applied_at datetime(6)  not null default (utc_timestamp(6))
) engine = InnoDB";

fn statements(names: &Names, migration: &Migration) -> Vec<String> {
    migration.template.split(BETWEEN).map(|template| render(names, template, &[])).collect()
}

/// A script may have been run before by hand.
fn note(names: &Names, migration: &Migration) -> String {
    let Migration { version, name, .. } = migration;
    let template = format!(
        "insert into {{migrations}} (version, name) values ({version}, '{name}') on duplicate key update version = version"
    );
    render(names, &template, &[])
}

/// Runs what is missing and answers which versions that were.
pub async fn run(pool: &MySqlPool, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    // Detached from the pool, so that the lock goes with the connection however this ends.
    let mut connection = pool.acquire().await.map_err(failed)?.detach();
    lock(&mut connection, &layout.names).await?;
    let ran = run_locked(&mut connection, layout).await;
    sqlx::Connection::close(connection).await.map_err(failed)?;
    ran
}

async fn run_locked(connection: &mut MySqlConnection, layout: &Layout) -> Result<Vec<i32>, StoreError> {
    let (names, all) = (&layout.names, versions(layout));
    execute(connection, render(names, VERSIONS, &[])).await?;
    let mut done = applied(connection, names).await.map_err(failed)?;
    refuse_newer(&done, latest(&all), &format!("the outbox {:?}", names.table()))?;
    done.extend(there_already(connection, layout, &all).await.map_err(failed)?);
    let mut ran = Vec::new();
    for migration in all.iter().filter(|migration| !done.contains(&migration.version)) {
        tracing::info!(
            version = migration.version,
            name = migration.name,
            table = names.table(),
            "migrating the outbox"
        );
        for statement in statements(names, migration) {
            execute(connection, statement).await?;
        }
        execute(connection, note(names, migration)).await?;
        ran.push(migration.version);
    }
    if has_turns(layout) && turns(connection, names).await.map_err(failed)? < i64::from(super::enqueue::TURNS) {
        execute(connection, render(names, TURNS, &[])).await?;
    }
    Ok(ran)
}

fn failed(error: sqlx::Error) -> StoreError {
    for_relay("migrate", error)
}

async fn lock(connection: &mut MySqlConnection, names: &Names) -> Result<(), StoreError> {
    let sql = render(names, "select get_lock({migrate_lock}, ?)", &[]);
    let got: Option<i64> =
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(PATIENCE).fetch_one(connection).await.map_err(failed)?;
    match got {
        Some(1) => Ok(()),
        _ => Err(StoreError::new(
            StoreErrorKind::Conflict,
            format!(
                "another process has been migrating {:?} for {PATIENCE} seconds; see what it does, then try again",
                names.table()
            ),
        )),
    }
}

/// DDL goes as text: not all of it can be prepared.
async fn execute(connection: &mut MySqlConnection, sql: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(failed)
}

async fn applied(connection: &mut MySqlConnection, names: &Names) -> Result<Vec<i32>, sqlx::Error> {
    let sql = render(names, "select version from {migrations}", &[]);
    let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn turns(connection: &mut MySqlConnection, names: &Names) -> Result<i64, sqlx::Error> {
    let sql = render(names, "select count(*) from {turns}", &[]);
    sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_holds_what_ends_it() {
        let script = script(&Layout::default());
        assert!(script.len() > 4 && script.iter().all(|statement| !statement.contains(DELIMITER)));
        assert_eq!(script_text(&Layout::default()).matches(DELIMITER).count(), script.len() + 1);
    }
}
