//! The conformance suite on SQLite: a file of its own for every promise.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::{EnqueueError, Enqueued, Message, Names, Operator, Outbox, SqliteStore, State};
use sea_orm::{DatabaseConnection, SqlxSqliteConnector};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{Row, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;
use testkit::conformance::{Harness, RowView, SeaOrm, WithSeaOrm};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// For how long a producer waits for another one; longer than any promise lets it, but for the one that it gives up.
const PRODUCERS_WAIT: Duration = Duration::from_secs(10);

struct OnSqlite {
    store: SqliteStore,
    producers: SqlitePool,
    _directory: TempDir,
}

impl Harness for OnSqlite {
    type Transaction = Transaction<'static, Sqlite>;

    async fn fresh() -> Self {
        let directory = TempDir::new().expect("a directory");
        let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
        let store = SqliteStore::open_with(options.clone(), Names::default()).await.expect("the file opens");
        store.migrate().await.expect("the migrations run");
        let options = options.busy_timeout(PRODUCERS_WAIT);
        let producers = SqlitePoolOptions::new().max_connections(5).connect_with(options).await;
        Self { store, producers: producers.expect("the file opens"), _directory: directory }
    }

    fn store(&self) -> Arc<dyn Operator> {
        Arc::new(self.store.clone())
    }

    /// Without the write lock, so that two can be open.
    async fn begin(&self) -> Self::Transaction {
        self.producers.begin().await.expect("a transaction begins")
    }

    async fn write(
        &self,
        transaction: &mut Self::Transaction,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.outbox().enqueue_many(transaction, messages).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.expect("it commits");
    }

    async fn roll_back(&self, transaction: Self::Transaction) {
        transaction.rollback().await.expect("it rolls back");
    }

    async fn rows(&self) -> Vec<RowView> {
        let rows = sqlx::query("select * from outbox_messages order by created_at, seq").fetch_all(&self.producers);
        rows.await.expect("the rows can be read").iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let update = sqlx::query("update outbox_messages set status = ?2 where id = ?1");
        let update = update.bind(id.hyphenated()).bind(status.as_str()).execute(&self.producers);
        assert_eq!(update.await.expect("the row can be edited").rows_affected(), 1);
    }

    /// Every decision compares a time of a row with the clock, so making all rows older is time passing.
    async fn pass_time(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        sqlx::query(PASS_TIME).bind(micros).execute(&self.producers).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        i64::try_from(since.as_micros()).expect("and before the end of time")
    }
}

const PASS_TIME: &str = "
    update outbox_messages
    set next_attempt_at = next_attempt_at - ?1, locked_until = locked_until - ?1,
        created_at = created_at - ?1, updated_at = updated_at - ?1, delivered_at = delivered_at - ?1";

fn view(row: &SqliteRow) -> Result<RowView, sqlx::Error> {
    Ok(RowView {
        id: row.try_get::<Hyphenated, _>("id")?.into_uuid(),
        status: State::parse(row.try_get("status")?).expect("the word is checked"),
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row.try_get::<Option<Hyphenated>, _>("locked_by")?.map(Hyphenated::into_uuid),
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
    })
}

testkit::conformance!(OnSqlite);

impl SeaOrm for OnSqlite {
    fn connection(&self) -> (DatabaseConnection, Outbox) {
        (SqlxSqliteConnector::from_sqlx_sqlite_pool(self.producers.clone()), self.store.outbox())
    }
}

mod with_sea_orm {
    use super::*;

    testkit::conformance_of_producers!(WithSeaOrm<OnSqlite>);
}
