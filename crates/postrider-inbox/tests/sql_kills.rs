//! Consumers are killed with SIGKILL at every step, and each event has its effect exactly once all the same.
//!
//! A consumer is this program again, with the variables below: it takes one event, stops at one step, says so and is killed.
//! The test is the broker that brings the event again.

use std::time::Duration;

use futures::{StreamExt, stream};
use postrider_inbox::{ConsumerName, Database, Delivery, Entry, Guard, Inbox, InboxTables, SqlInbox};
use sqlx::{AssertSqlSafe, MySqlPool, Pool, SqlitePool};
use testkit::{MariaDb, Postgres, Signal, Worker};
use uuid::Uuid;

const URL: &str = "POSTRIDER_KILLS_URL";
const EVENT: &str = "POSTRIDER_KILLS_EVENT";
const STEP: &str = "POSTRIDER_KILLS_STEP";
const PATIENCE: Duration = Duration::from_secs(120);
/// Consumers at once.
const CROWD: usize = 4;

/// By how many milliseconds those that commit are killed later, in turn.
const LATER: [u64; 5] = [0, 0, 0, 1, 5];

/// Where a consumer is killed; while it commits, nobody knows how far it got.
const STEPS: [&str; 4] = ["entered", "written", "committing", "committed"];

/// Kills of each database, times what `POSTRIDER_TEST_SCALE` says. The last kill of an event is after its commit.
fn kills(size: usize) -> usize {
    size * std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

fn delivery(event: Uuid) -> Delivery {
    Delivery::new(ConsumerName::new("mailer").expect("a plain name"), event)
}

/// The consumer; nothing in a run of the tests.
#[tokio::test]
async fn consumer() {
    let (Ok(url), Ok(event), Ok(step)) = (std::env::var(URL), std::env::var(EVENT), std::env::var(STEP)) else {
        return;
    };
    let event = event.parse().expect("an event");
    match url.split(':').next() {
        Some("postgres") => {
            consume(sqlx::PgPool::connect(&url).await.expect("it answers"), event, &step, run_postgres).await
        }
        Some("mysql") => consume(MySqlPool::connect(&url).await.expect("it answers"), event, &step, run_mysql).await,
        _ => consume(SqlitePool::connect(&url).await.expect("it opens"), event, &step, run_sqlite).await,
    }
}

macro_rules! run {
    ($name:ident, $database:ty) => {
        async fn $name(transaction: &mut sqlx::Transaction<'static, $database>, sql: String) {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **transaction).await.expect("the effect is written");
        }
    };
}

run!(run_postgres, sqlx::Postgres);
run!(run_mysql, sqlx::MySql);
run!(run_sqlite, sqlx::Sqlite);

async fn consume<DB: Database>(
    pool: Pool<DB>,
    event: Uuid,
    step: &str,
    write: impl AsyncFn(&mut sqlx::Transaction<'static, DB>, String),
) {
    let inbox = SqlInbox::new(pool, InboxTables::default());
    let mut guard = loop {
        match inbox.begin(&delivery(event)).await {
            Ok(Entry::First(guard)) => break guard,
            Ok(Entry::AlreadyProcessed) => return stop("already").await,
            Ok(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    };
    if step == "entered" {
        return stop(step).await;
    }
    write(guard.transaction(), format!("insert into effects (event) values ('{event}')")).await;
    match step {
        "written" => stop(step).await,
        "committing" => {
            println!("at {step}");
            guard.commit().await.expect("it commits");
            stop("the end").await;
        }
        _ => {
            guard.commit().await.expect("it commits");
            stop(step).await;
        }
    }
}

/// Says where it is, and waits to be killed.
async fn stop(step: &str) {
    println!("at {step}");
    std::future::pending().await
}

/// Delivers one event to a consumer and kills it; says what it had come to.
async fn kill(url: &str, event: Uuid, step: &str, later: Duration) -> String {
    let program = std::env::current_exe().expect("this program");
    let event = event.to_string();
    let mut worker =
        Worker::spawn(program, &["consumer", "--exact", "--nocapture"], &[(URL, url), (EVENT, &event), (STEP, step)])
            .expect("it starts");
    let line = worker.wait_for_line(|line| line.contains("at "), PATIENCE).await.expect("it comes to its step");
    if !later.is_zero() {
        tokio::time::sleep(later).await;
    }
    worker.signal(Signal::SIGKILL).expect("it is killed");
    worker.wait(PATIENCE).await.expect("it ends");
    line.rsplit("at ").next().unwrap_or_default().to_owned()
}

/// Kills consumers at every step of every event; `effects` are all effects there are.
async fn survive(url: &str, kills: usize, effects: impl AsyncFn() -> Vec<String>) {
    let events: Vec<Uuid> = (0..kills / STEPS.len()).map(|_| Uuid::now_v7()).collect();
    let told =
        stream::iter(events.clone().into_iter().zip(LATER.into_iter().cycle())).map(|(event, later)| async move {
            let mut told = Vec::new();
            for step in STEPS {
                // Some are killed a little later, so that a commit is met at its beginning, on its way and at its end.
                let later = Duration::from_millis(if step == "committing" { later } else { 0 });
                told.push(kill(url, event, step, later).await);
            }
            told
        });
    let told: Vec<Vec<String>> = told.buffer_unordered(CROWD).collect().await;
    for told in &told {
        let (before, after) = told.split_at(3);
        assert_eq!(before, &STEPS[..3], "an event was processed before its commit");
        assert!(["committed", "already"].contains(&&*after[0]), "{after:?}");
    }
    let mut had: Vec<Uuid> = effects().await.iter().map(|text| text.parse().expect("an event")).collect();
    had.sort();
    assert_eq!(had, events, "each event has its effect once");
    let committed = told.iter().filter(|told| told[3] == "already").count();
    assert!(
        0 < committed && committed < told.len(),
        "the kills while committing all had one outcome: {committed} of {} were committed",
        told.len()
    );
    println!(
        "{} kills; {committed} of {} were killed after the server had committed",
        told.len() * STEPS.len(),
        told.len()
    );
}

const LEDGER: &str = "create table effects (event char(36) not null)";
const EFFECTS: &str = "select event from effects";

#[tokio::test(flavor = "multi_thread")]
async fn r63_on_postgres_the_effect_happens_exactly_once_whenever_consumers_are_killed() {
    let server = Postgres::shared().await.expect("the server starts");
    let database = server.create_database().await.expect("the database is created");
    let pool = database.pool().await.expect("it answers");
    InboxTables::default().migrate(&pool).await.expect("the tables are made");
    sqlx::raw_sql(LEDGER).execute(&pool).await.expect("the ledger is made");
    let effects = async || sqlx::query_scalar(EFFECTS).fetch_all(&pool).await.expect("it answers");
    survive(&database.url(), kills(200), effects).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_on_mysql_the_effect_happens_exactly_once_whenever_consumers_are_killed() {
    let server = MariaDb::shared().await.expect("the server starts");
    let database = server.create_database().await.expect("the database is created");
    let pool = database.pool().await.expect("it answers");
    InboxTables::default().migrate(&pool).await.expect("the tables are made");
    sqlx::raw_sql(LEDGER).execute(&pool).await.expect("the ledger is made");
    let effects = async || sqlx::query_scalar(EFFECTS).fetch_all(&pool).await.expect("it answers");
    survive(&database.url(), kills(200), effects).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_on_sqlite_the_effect_happens_exactly_once_whenever_consumers_are_killed() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("consumer.db").display());
    let pool = SqlitePool::connect(&url).await.expect("it opens");
    sqlx::raw_sql("pragma journal_mode = wal").execute(&pool).await.expect("it is set");
    InboxTables::default().migrate(&pool).await.expect("the tables are made");
    sqlx::raw_sql(LEDGER).execute(&pool).await.expect("the ledger is made");
    let effects = async || sqlx::query_scalar(EFFECTS).fetch_all(&pool).await.expect("it answers");
    survive(&url, kills(100), effects).await;
}
