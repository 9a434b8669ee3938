//! Bringing a database's schema up to date.
//!
//! MySQL's DDL is not transactional, so every statement can be run again, and a version is noted after all of its
//! statements: a failure half way is repaired by the next run. A lock of the server keeps two processes apart.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, Row};

use super::error::for_relay;
use super::statements::render;
use crate::migration::{Migration, Pending, list, refuse_newer};
use crate::names::Names;

const MIGRATIONS: [Migration; 5] = [
    Migration { version: 1, name: "outbox", template: include_str!("../../sql/mysql/migrations/0001_outbox.sql") },
    Migration {
        version: 2,
        name: "enqueue_procedure",
        template: include_str!("../../sql/mysql/migrations/0002_enqueue_procedure.sql"),
    },
    Migration { version: 3, name: "audit", template: include_str!("../../sql/mysql/migrations/0003_audit.sql") },
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

/// The version of the schema that this library writes and reads.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The version with the table of turns, which are filled in after it.
const FIRST: i32 = 1;

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
pub fn script(names: &Names) -> Vec<String> {
    let mut script = vec![render(names, VERSIONS, &[])];
    for migration in &MIGRATIONS {
        script.extend(statements(names, migration));
        script.push(note(names, migration));
    }
    script.push(render(names, TURNS, &[]));
    script
}

/// [`script`] as one text for the `mysql` and `mariadb` programs, which need to be told where a procedure ends.
pub fn script_text(names: &Names) -> String {
    delimited(&script(names))
}

/// Ends each statement with what none of them holds.
fn delimited(statements: &[String]) -> String {
    let statements = statements.iter().map(|statement| format!("{}\n{DELIMITER}\n", statement.trim_end()));
    format!("delimiter {DELIMITER}\n{}delimiter ;\n", statements.collect::<String>())
}

/// What [`run`] would run now, each version as [`script_text`] writes it. Reads only.
pub async fn pending(pool: &MySqlPool, names: &Names) -> Result<Vec<Pending>, StoreError> {
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
    let applied = if there > 0 { applied(&mut connection, names).await.map_err(failed)? } else { Vec::new() };
    refuse_newer(&applied, LATEST, &format!("the outbox {:?}", names.table()))?;
    let before = if there > 0 { String::new() } else { delimited(&[render(names, VERSIONS, &[])]) };
    Ok(list(&MIGRATIONS, &applied, before, |migration| {
        let mut all = statements(names, migration);
        all.push(note(names, migration));
        if migration.version == FIRST {
            all.push(render(names, TURNS, &[]));
        }
        delimited(&all)
    }))
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
pub async fn run(pool: &MySqlPool, names: &Names) -> Result<Vec<i32>, StoreError> {
    // Detached from the pool, so that the lock goes with the connection however this ends.
    let mut connection = pool.acquire().await.map_err(failed)?.detach();
    lock(&mut connection, names).await?;
    let ran = run_locked(&mut connection, names).await;
    sqlx::Connection::close(connection).await.map_err(failed)?;
    ran
}

async fn run_locked(connection: &mut MySqlConnection, names: &Names) -> Result<Vec<i32>, StoreError> {
    execute(connection, render(names, VERSIONS, &[])).await?;
    let applied = applied(connection, names).await.map_err(failed)?;
    refuse_newer(&applied, LATEST, &format!("the outbox {:?}", names.table()))?;
    let mut ran = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)) {
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
    if turns(connection, names).await.map_err(failed)? < i64::from(super::enqueue::TURNS) {
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
        let script = script(&Names::default());
        assert!(script.len() > 4 && script.iter().all(|statement| !statement.contains(DELIMITER)));
        assert_eq!(script_text(&Names::default()).matches(DELIMITER).count(), script.len() + 1);
    }
}
