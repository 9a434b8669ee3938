//! One table, several languages: PostgreSQL with all three, MariaDB with TypeScript, SQLite with Python.

use std::time::Duration;

use postrider_inbox::{InboxTables, MySqlGuard, MySqlInbox, PostgresGuard, PostgresInbox, SqliteGuard, SqliteInbox};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tempfile::TempDir;
use testkit::{MariaDb, Postgres, eventually};
use uuid::Uuid;

use crate::party::{Acts, Foreign, Party, Rust};

const SOON: Duration = Duration::from_secs(120);
/// How long Rust waits for another writer of an SQLite file.
const BUSY: Duration = Duration::from_millis(200);
const EFFECTS: &str = "create table effects (event char(36) not null)";

macro_rules! acts {
    ($($guard:ty, $insert:literal);*) => {$(
        impl Acts for $guard {
            async fn act(&mut self, event: Uuid) {
                let insert = sqlx::query($insert).bind(event.to_string());
                insert.execute(&mut **self.transaction()).await.expect("it is written");
            }
        }
    )*};
}

acts! {
    PostgresGuard, "insert into effects (event) values ($1)";
    MySqlGuard, "insert into effects (event) values (?)";
    SqliteGuard, "insert into effects (event) values (?)"
}

/// How often handlers of an event have had their effect.
macro_rules! effects {
    ($pool:expr, $event:expr) => {{
        let count = format!("select count(*) from effects where event = '{}'", $event);
        sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count)).fetch_one($pool).await.expect("it is counted")
    }};
}

async fn postgres() -> (String, PgPool, Rust<PostgresInbox>) {
    let database = Postgres::shared().await.expect("a server").create_database().await.expect("a database");
    let pool = database.pool().await.expect("a pool");
    sqlx::query(EFFECTS).execute(&pool).await.expect("a table");
    let inbox = PostgresInbox::new(pool.clone(), InboxTables::default());
    inbox.migrate().await.expect("the tables are made");
    (database.url(), pool, Rust::new(inbox))
}

async fn mysql() -> (String, MySqlPool, Rust<MySqlInbox>) {
    let database = MariaDb::shared().await.expect("a server").create_database().await.expect("a database");
    let pool = database.pool().await.expect("a pool");
    sqlx::query(EFFECTS).execute(&pool).await.expect("a table");
    let inbox = MySqlInbox::new(pool.clone(), InboxTables::default());
    inbox.migrate().await.expect("the tables are made");
    (database.url(), pool, Rust::new(inbox))
}

async fn sqlite() -> (TempDir, String, SqlitePool, Rust<SqliteInbox>) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("shop.db");
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true).busy_timeout(BUSY);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(options).await.expect("a pool");
    sqlx::query(EFFECTS).execute(&pool).await.expect("a table");
    let inbox = SqliteInbox::new(pool.clone(), InboxTables::default());
    inbox.migrate().await.expect("the tables are made");
    (directory, file.display().to_string(), pool, Rust::new(inbox))
}

/// What one has handled is a duplicate for the other; what failed is free.
async fn processed(one: &mut impl Party, other: &mut impl Party) -> Uuid {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    one.fail(event).await;
    assert_eq!(other.begin(event, None).await, "first", "{} after {} failed", other.name(), one.name());
    other.fail(event).await;
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    assert_eq!(one.succeed(event).await, "ran", "{}", one.name());
    assert_eq!(other.begin(event, None).await, "processed", "{} after {}", other.name(), one.name());
    event
}

/// What one handles is in progress for the other, which does not wait for longer than it is told to.
async fn held(one: &mut impl Party, other: &mut impl Party) -> Uuid {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    assert_eq!(other.begin(event, None).await, "in progress", "{} beside {}", other.name(), one.name());
    assert_eq!(one.succeed(event).await, "ran", "{}", one.name());
    assert_eq!(other.begin(event, None).await, "processed", "{} after {}", other.name(), one.name());
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_what_one_language_processed_is_a_duplicate_for_the_others() {
    let (url, pool, mut rust) = postgres().await;
    let (mut python, mut typescript) =
        tokio::join!(Foreign::python("postgres", &url), Foreign::typescript("postgres", &url));
    for event in [
        processed(&mut rust, &mut python).await,
        processed(&mut python, &mut rust).await,
        processed(&mut rust, &mut typescript).await,
        processed(&mut typescript, &mut rust).await,
        processed(&mut python, &mut typescript).await,
        processed(&mut typescript, &mut python).await,
    ] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mysql_what_one_language_processed_is_a_duplicate_for_the_other() {
    let (url, pool, mut rust) = mysql().await;
    let mut typescript = Foreign::typescript("mysql", &url).await;
    for event in [processed(&mut rust, &mut typescript).await, processed(&mut typescript, &mut rust).await] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_what_one_language_processed_is_a_duplicate_for_the_other() {
    let (_directory, file, pool, mut rust) = sqlite().await;
    let mut python = Foreign::python("sqlite", &file).await;
    for event in [processed(&mut rust, &mut python).await, processed(&mut python, &mut rust).await] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_on_postgres_what_one_language_handles_is_in_progress_for_the_others() {
    let (url, pool, mut rust) = postgres().await;
    let (mut python, mut typescript) =
        tokio::join!(Foreign::python("postgres", &url), Foreign::typescript("postgres", &url));
    for event in [
        held(&mut rust, &mut python).await,
        held(&mut rust, &mut typescript).await,
        held(&mut python, &mut typescript).await,
        held(&mut typescript, &mut python).await,
    ] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

/// Whether somebody waits for a lock in this database.
async fn waits(pool: &PgPool) -> bool {
    let sql =
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("it answers")
}

/// The other languages take no advisory lock, so Rust waits for their transactions and is told then.
#[tokio::test(flavor = "multi_thread")]
async fn r64_on_postgres_rust_waits_for_what_another_language_handles() {
    let (url, pool, mut rust) = postgres().await;
    let (mut python, mut typescript) =
        tokio::join!(Foreign::python("postgres", &url), Foreign::typescript("postgres", &url));
    for foreign in [&mut python, &mut typescript] {
        for (fails, then) in [(false, "processed"), (true, "first")] {
            let event = Uuid::now_v7();
            assert_eq!(foreign.begin(event, None).await, "first");
            let end = async {
                eventually(SOON, || waits(&pool)).await;
                match fails {
                    true => foreign.fail(event).await,
                    false => assert_eq!(foreign.succeed(event).await, "ran"),
                }
            };
            let (told, ()) = tokio::join!(rust.begin(event, None), end);
            assert_eq!(told, then);
            if fails {
                assert_eq!(rust.succeed(event).await, "ran");
            }
            assert_eq!(effects!(&pool, event), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_on_mysql_what_one_language_handles_is_in_progress_for_the_other() {
    let (url, pool, mut rust) = mysql().await;
    let mut typescript = Foreign::typescript("mysql", &url).await;
    for event in [held(&mut rust, &mut typescript).await, held(&mut typescript, &mut rust).await] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_on_sqlite_what_one_language_handles_is_in_progress_for_the_other() {
    let (_directory, file, pool, mut rust) = sqlite().await;
    let mut python = Foreign::python("sqlite", &file).await;
    for event in [held(&mut rust, &mut python).await, held(&mut python, &mut rust).await] {
        assert_eq!(effects!(&pool, event), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_an_older_attempt_is_late_whichever_language_saw_the_newer() {
    let (url, _pool, mut rust) = postgres().await;
    let (mut python, mut typescript) =
        tokio::join!(Foreign::python("postgres", &url), Foreign::typescript("postgres", &url));
    late(&mut rust, &mut python).await;
    late(&mut python, &mut rust).await;
    late(&mut rust, &mut typescript).await;
    late(&mut typescript, &mut rust).await;
}

async fn late(one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, Some("1.3")).await, "first", "{}", one.name());
    one.fail(event).await;
    for older in ["1.2", "0.20"] {
        assert_eq!(other.begin(event, Some(older)).await, "stale", "{} after {}", other.name(), one.name());
    }
    assert_eq!(other.begin(event, Some("1.3")).await, "first", "{}", other.name());
    other.fail(event).await;
    assert_eq!(other.begin(event, Some("1.10")).await, "first", "{}", other.name());
    assert_eq!(other.succeed(event).await, "ran", "{}", other.name());
    for any in ["1.9", "1.10", "2.1"] {
        assert_eq!(one.begin(event, Some(any)).await, "processed", "{} after {}", one.name(), other.name());
    }
}

/// A handler that passes over an error that undid its transaction has lost its effect: it is not to be acknowledged.
async fn swallowed(foreign: &mut Foreign, how: &[&str]) -> Uuid {
    let event = Uuid::now_v7();
    for how in how {
        assert_eq!(foreign.begin(event, None).await, "first", "before {how}");
        let told = foreign.ask(json!({ "how": how })).await;
        let is_error = ["RuntimeError", "Error", "DatabaseError"].iter().any(|error| told == *error);
        assert!(is_error, "{} says {told} of {how}", foreign.name());
    }
    assert_eq!(foreign.begin(event, None).await, "first", "{}", foreign.name());
    assert_eq!(foreign.succeed(event).await, "ran", "{}", foreign.name());
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_passes_over_an_error_of_the_database_is_not_taken_for_one_that_succeeded() {
    let (url, pool, _rust) = postgres().await;
    let mut python = Foreign::python("postgres", &url).await;
    assert_eq!(effects!(&pool, swallowed(&mut python, &["swallow", "rollback", "undo"]).await), 1);
    let mut typescript = Foreign::typescript("postgres", &url).await;
    assert_eq!(effects!(&pool, swallowed(&mut typescript, &["swallow", "rollback"]).await), 1);
    let (url, pool, _rust) = mysql().await;
    assert_eq!(effects!(&pool, swallowed(&mut Foreign::typescript("mysql", &url).await, &["swallow"]).await), 1);
    let (_directory, file, pool, _rust) = sqlite().await;
    assert_eq!(effects!(&pool, swallowed(&mut Foreign::python("sqlite", &file).await, &["swallow"]).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_at_once_on_one_connection_are_refused() {
    let (url, _pool, _rust) = postgres().await;
    let (mysql_url, _mysql_pool, _mysql_rust) = mysql().await;
    for mut typescript in [Foreign::typescript("postgres", &url).await, Foreign::typescript("mysql", &mysql_url).await]
    {
        assert_eq!(typescript.ask(json!({ "do": "overlap" })).await, 1);
    }
}
