//! The inbox on SQLite keeps every promise of the inbox seam, and its own.

mod sql;

use std::collections::HashMap;
use std::time::Duration;

use postrider_inbox::{Entry, InboxError, InboxTables};
use sea_orm::{DatabaseConnection, SqlxSqliteConnector};
use sql::{Scene, Suite, delivery, first, inbox, scaled};
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
        let lines = sqlx::query_scalar("select sql from sqlite_schema where tbl_name like 'inbox%' and sql is not null order by name");
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

testkit::inbox_conformance!(Suite<OnSqlite, { scaled(200) }>);
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
async fn an_inbox_may_be_in_an_attached_database() {
    let directory = TempDir::new().expect("a directory");
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("it opens");
    let attach = format!("attach database '{}' as shop", directory.path().join("shop.db").display());
    sqlx::raw_sql(AssertSqlSafe(attach)).execute(&pool).await.expect("it is attached");
    let tables = InboxTables::builder().schema("shop").build().expect("it is acceptable");
    tables.migrate(&pool).await.expect("the tables are made");
    let mut transaction = pool.begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut transaction, &delivery()).await.expect("it answers"), Entry::First(())));
    transaction.commit().await.expect("it commits");
    let rows: i64 = sqlx::query_scalar("select count(*) from shop.inbox_messages").fetch_one(&pool).await.expect("it answers");
    assert_eq!(rows, 1);
}
