//! The inbox on SQLite keeps every promise of the inbox seam, and its own.

mod sql;

use std::collections::HashMap;
use std::time::Duration;

use postrider_inbox::{Entry, Guard, Inbox, InboxError, InboxTables, SqliteGuard, SqliteInbox, run_once};
use sea_orm::{DatabaseConnection, SqlxSqliteConnector};
use sql::{Scene, Suite, delivery, first, inbox};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// How long a delivery waits for another one's transaction.
const SHORT: Duration = Duration::from_millis(20);

struct OnSqlite {
    options: SqliteConnectOptions,
    pool: SqlitePool,
    _directory: TempDir,
}

impl OnSqlite {
    async fn open(options: SqliteConnectOptions) -> SqlitePool {
        SqlitePoolOptions::new().max_connections(20).connect_with(options).await.expect("the file opens")
    }
}

impl Scene for OnSqlite {
    type Db = Sqlite;

    async fn start() -> Self {
        let directory = TempDir::new().expect("a directory");
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("consumer.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let pool = Self::open(options.clone().busy_timeout(SHORT)).await;
        let scene = Self { options, pool, _directory: directory };
        inbox(&scene).migrate().await.expect("the tables are made");
        scene.run("create table effects (event text not null)").await.expect("the ledger is made");
        scene
    }

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    async fn patient_pool(&self) -> SqlitePool {
        Self::open(self.options.clone().busy_timeout(sql::PATIENCE)).await
    }

    fn sea_orm(&self) -> DatabaseConnection {
        SqlxSqliteConnector::from_sqlx_sqlite_pool(self.pool.clone())
    }

    async fn run_in(transaction: &mut Transaction<'_, Sqlite>, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **transaction).await.map(drop)
    }

    async fn ledger(&self) -> HashMap<Uuid, usize> {
        let rows = sqlx::query_as("select event, count(*) from effects group by event").fetch_all(&self.pool).await;
        let rows: Vec<(Hyphenated, i64)> = rows.expect("the ledger can be read");
        rows.into_iter().map(|(event, count)| (event.into_uuid(), count as usize)).collect()
    }

    async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
    }

    async fn prepare(&self, sql: &str) -> Result<(), sqlx::Error> {
        self.pool.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await.map(drop)
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.expect("it answers")
    }

    async fn plan(&self, sql: &str) -> String {
        let explain = AssertSqlSafe(format!("explain query plan {sql}"));
        let lines = sqlx::query(explain).bind(10_i64).fetch_all(&self.pool).await.expect("it is explained");
        let plan: Vec<String> = lines.iter().map(|line| line.get("detail")).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("SCAN inbox") && !plan.contains("TEMP B-TREE"), "{plan}");
        plan
    }

    async fn catalog(&self) -> String {
        let lines = sqlx::query_scalar(
            "select sql from sqlite_schema where tbl_name like 'inbox%' and sql is not null order by name",
        );
        let lines: Vec<String> = lines.fetch_all(&self.pool).await.expect("it answers");
        lines.join("\n")
    }

    const NOW: &'static str = "cast(unixepoch('subsec') * 1000000 as integer)";

    fn in_hours(hours: i64) -> String {
        format!("{} + {hours} * 3600000000", Self::NOW)
    }

    async fn other_schema(&self) -> Option<String> {
        None
    }
}

testkit::inbox_conformance!(Suite<OnSqlite>);
sql_promises!(OnSqlite);

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_read_before_somebody_wrote_is_to_be_tried_again() {
    let scene = OnSqlite::start().await;
    let mut reader = scene.pool.begin().await.expect("it begins");
    OnSqlite::run_in(&mut reader, "select * from effects").await.expect("a snapshot is taken");
    scene.run("insert into effects values ('')").await.expect("it is written");
    let conflict = InboxTables::default().enter(&mut reader, &delivery()).await.expect_err("it cannot write");
    assert!(matches!(conflict, InboxError::Conflict(_)) && conflict.is_transient(), "{conflict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_found_while_another_event_is_handled() {
    let scene = OnSqlite::start().await;
    let inbox = inbox(&scene);
    let done = delivery();
    postrider_inbox::Guard::commit(first(&inbox, &done).await).await.expect("it commits");
    let _guard = first(&inbox, &delivery()).await;
    let entry = postrider_inbox::Inbox::begin(&inbox, &done).await.expect("it answers");
    assert!(matches!(entry, Entry::AlreadyProcessed), "{entry:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_in_another_file_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("it opens");
    let attach = format!("attach database '{}' as shop", directory.path().join("shop.db").display());
    sqlx::raw_sql(AssertSqlSafe(attach)).execute(&pool).await.expect("it is attached");
    let tables = InboxTables::builder().schema("shop").build().expect("other databases take it");
    let refused = |error: Option<InboxError>| {
        let said = error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(error, Some(InboxError::Config(_))) && said.contains("shop"), "{error:?}");
    };
    refused(tables.migrate(&pool).await.err());
    let inbox = SqliteInbox::new(pool.clone(), tables.clone());
    refused(inbox.begin(&delivery()).await.err());
    refused(inbox.check_and_mark_processed(&delivery().consumer, delivery().event, sql::PATIENCE).await.err());
    refused(inbox.note_attempt(&delivery().with_attempt(sql::attempt(0, 1))).await.err());
    refused(inbox.purge_all().await.err());
    let mut transaction = pool.begin().await.expect("it begins");
    refused(tables.enter(&mut transaction, &delivery()).await.err());
    transaction.rollback().await.expect("it is rolled back");

    let tables = InboxTables::builder().schema("main").build().expect("it is acceptable");
    let inbox = SqliteInbox::new(pool, tables);
    inbox.migrate().await.expect("the tables are made");
    first(&inbox, &delivery()).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_keeps_the_row_out_is_an_error_and_no_processed_event() {
    let scene = OnSqlite::start().await;
    let trigger = "create trigger keep_out before insert on inbox_messages begin select raise(ignore); end";
    scene.run(trigger).await.expect("it is made");
    let refused = inbox(&scene).begin(&delivery()).await;
    assert!(matches!(refused, Err(InboxError::Failed(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_else_may_even_read_the_event_is_being_handled() {
    let scene = OnSqlite::start().await;
    scene.pool.close().await;
    let pool = OnSqlite::open(scene.options.clone().busy_timeout(SHORT).journal_mode(SqliteJournalMode::Delete)).await;
    let writer = pool.begin_with("begin exclusive").await.expect("it begins");
    let (inbox, delivery) = (SqliteInbox::new(pool.clone(), InboxTables::default()), delivery());
    let entry = inbox.begin(&delivery).await.expect("it answers");
    assert!(matches!(entry, Entry::InProgress(_)), "{entry:?}");
    let told = inbox.check_and_mark_processed(&delivery.consumer, delivery.event, sql::PATIENCE).await;
    assert!(matches!(told, Err(InboxError::InProgress { .. })), "{told:?}");
    writer.rollback().await.expect("it is rolled back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_leaves_a_good_connection() {
    let scene = OnSqlite::start().await;
    let wrong = "create table parents (id integer primary key); \
                 create table children (parent integer references parents (id) deferrable initially deferred)";
    scene.run(wrong).await.expect("it is made");
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(scene.options.clone()).await.expect("it opens");
    let (inbox, delivery) = (SqliteInbox::new(pool, InboxTables::default()), delivery());
    for _ in 0..3 {
        let mut guard = first(&inbox, &delivery).await;
        OnSqlite::run_in(guard.transaction(), "insert into children values (7)").await.expect("it is written");
        guard.commit().await.expect_err("there is no such parent");
    }
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_runs_in_a_spawned_task() {
    let scene = OnSqlite::start().await;
    let (inbox, delivery) = (inbox(&scene), delivery());
    let event = delivery.event;
    let task = tokio::spawn(async move {
        run_once(&inbox, &delivery, async |guard: &mut SqliteGuard| {
            let text = delivery.event.to_string();
            sqlx::query("insert into effects (event) values ($1)").bind(text).execute(&mut **guard.transaction()).await
        })
        .await
    });
    assert!(task.await.expect("it does not panic").expect("it runs").may_ack());
    assert_eq!(scene.ledger().await, HashMap::from([(event, 1)]));
}
