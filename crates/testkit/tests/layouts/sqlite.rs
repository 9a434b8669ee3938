//! Tables of other shapes in an SQLite file: what they keep of the promises, and what they do not and why.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::layout::{Ability, LayoutError, preset};
use postrider::{EnqueueError, Enqueued, Message, Operator, SqliteStore, State};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Row, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;
use testkit::conformance::{Harness, RowView};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::shapes::{self, DebeziumKeep, Modkit, NAMESPACES_WAKE, Own, Shape, Talkie, listed};

/// For how long a producer waits for another one; longer than any promise lets it, but for the one that it gives up.
const PRODUCERS_WAIT: Duration = Duration::from_secs(10);

/// A file with such a table.
struct OnSqlite<S> {
    store: SqliteStore,
    producers: SqlitePool,
    _directory: TempDir,
    _shape: PhantomData<S>,
}

impl<S: Shape> Harness for OnSqlite<S> {
    type Transaction = Transaction<'static, Sqlite>;

    async fn fresh() -> Self {
        let directory = TempDir::new().expect("a directory");
        let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
        let store = SqliteStore::open_with_layout(options.clone(), S::layout()).await.expect("the file opens");
        sqlx::raw_sql(S::MADE).execute(store.pool()).await.expect("the table is made");
        store.migrate().await.expect("the migrations run");
        let options = options.busy_timeout(PRODUCERS_WAIT);
        let producers = SqlitePoolOptions::new().max_connections(5).connect_with(options).await;
        Self { store, producers: producers.expect("the file opens"), _directory: directory, _shape: PhantomData }
    }

    fn cannot(promise: &str) -> Option<&'static str> {
        let wake = if S::layout().can(Ability::Namespaces) { &[] } else { NAMESPACES_WAKE };
        listed(&[S::CANNOT, wake], promise)
    }

    fn can(ability: Ability) -> bool {
        S::layout().can(ability)
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
        self.store.outbox().enqueue_many(transaction, messages.into_iter().map(S::fit)).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.expect("it commits");
    }

    async fn roll_back(&self, transaction: Self::Transaction) {
        transaction.rollback().await.expect("it rolls back");
    }

    async fn rows(&self) -> Vec<RowView> {
        let sql = format!(
            "select id, {} as status, {} as attempts, {} as locked_by, last_error, next_attempt_at, created_at,
               case when {} then {} + {} end as locked_until, {} as updated_at, {} as delivered_at
             from {} order by created_at, rowid",
            S::STATUS,
            S::ATTEMPTS,
            S::LOCKED_BY,
            S::IS_LOCKED,
            S::LOCKED,
            S::LOCK_TIMEOUT,
            S::UPDATED,
            S::DELIVERED,
            S::TABLE
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.producers).await.expect("the rows can be read");
        rows.iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let update = format!("update {} set status = ?2 where id = ?1", S::TABLE);
        let update = sqlx::query(AssertSqlSafe(update)).bind(id.hyphenated()).bind(S::word(status));
        assert_eq!(update.execute(&self.producers).await.expect("the row can be edited").rows_affected(), 1);
    }

    /// Every decision compares a time of a row with the clock, so making all rows older is time passing.
    async fn pass_time(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        let earlier = S::TIMES.iter().map(|time| format!("{time} = {time} - ?1")).collect::<Vec<_>>().join(", ");
        let update = format!("update {} set {earlier}", S::TABLE);
        sqlx::query(AssertSqlSafe(update)).bind(micros).execute(&self.producers).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        i64::try_from(since.as_micros()).expect("and before the end of time")
    }
}

fn view(row: &SqliteRow) -> Result<RowView, sqlx::Error> {
    Ok(RowView {
        id: row.try_get::<Hyphenated, _>("id")?.into_uuid(),
        status: State::parse(row.try_get("status")?).expect("the word is one of ours"),
        attempts: row.try_get("attempts")?,
        max_attempts: None,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row.try_get::<Option<Hyphenated>, _>("locked_by")?.map(Hyphenated::into_uuid),
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
    })
}

mod modkit {
    use super::*;
    testkit::conformance!(OnSqlite<Modkit>);
}

mod talkie {
    use super::*;
    testkit::conformance!(OnSqlite<Talkie>);
}

mod debezium_keep {
    use super::*;
    testkit::conformance!(OnSqlite<DebeziumKeep>);
}

#[tokio::test]
async fn r13_stale_settles_of_a_row_that_names_no_worker_change_nothing() {
    shapes::stale_settles_change_nothing::<OnSqlite<Talkie>>().await;
}

#[tokio::test]
async fn rows_are_given_up_by_way_of_the_owner_s_word_for_failed_ones() {
    let h = OnSqlite::<Talkie>::fresh().await;
    let state_machine = "create trigger state_machine before update of status on outbox
        when old.status = 'publishing' and new.status = 'dead_lettered' begin select raise(abort, 'not from there'); end";
    sqlx::raw_sql(state_machine).execute(&h.producers).await.expect("a trigger is made");
    shapes::rows_are_given_up_by_way_of_failed(&h).await;
}

#[tokio::test]
async fn s2_27_a_row_that_an_older_publisher_left_without_a_time_is_claimed_again() {
    let h = OnSqlite::<Talkie>::fresh().await;
    // A column of SQLite cannot be told to take nulls; a table can be made that does.
    let sql = "create table other as select * from outbox; drop table outbox; alter table other rename to outbox";
    sqlx::raw_sql(sql).execute(&h.producers).await.expect("made");
    let unique = "create unique index outbox_key on outbox (topic, idempotency_key)";
    sqlx::raw_sql(unique).execute(&h.producers).await.expect("made");
    let forget = async |what: &str| {
        let sql = AssertSqlSafe(format!("update outbox set {what}"));
        sqlx::query(sql).execute(&h.producers).await.expect("written");
    };
    shapes::rows_without_times_are_delivered(&h, forget).await;
}

#[tokio::test]
async fn ids_may_be_written_in_upper_case_or_without_hyphens() {
    let h = OnSqlite::<Talkie>::fresh().await;
    let sql = "create table other as select * from outbox; drop table outbox; alter table other rename to outbox;
        create unique index outbox_key on outbox (topic, idempotency_key)";
    sqlx::raw_sql(sql).execute(&h.producers).await.expect("made");
    let rewrite = async |how: &str| {
        let sql = format!("update outbox set id = {how}, retry_count = 0 where status = 'pending'");
        sqlx::query(AssertSqlSafe(sql)).execute(&h.producers).await.expect("written");
    };
    shapes::ids_may_be_written_in_other_ways(&h, rewrite).await;
}

#[tokio::test]
async fn uuids_may_be_bytes_in_a_table_that_was_there() {
    shapes::uuids_may_be_bytes::<OnSqlite<Own<false>>>().await;
}

#[tokio::test]
async fn a_plain_insert_of_the_event_router_s_columns_is_delivered_with_the_time_it_was_made() {
    let h = OnSqlite::<DebeziumKeep>::fresh().await;
    let insert = "insert into outboxevent (id, aggregatetype, aggregateid, type, payload) values (?1, 'order', '7', 'placed', '{}')";
    sqlx::query(insert).bind(Uuid::new_v4().hyphenated()).execute(&h.producers).await.expect("a row is written");
    let claimed = h.claim_one(Uuid::new_v4()).await;
    assert!(claimed.age < Duration::from_secs(60), "{:?}", claimed.age);
    assert_eq!((claimed.topic.as_str(), claimed.key.as_deref()), ("order", Some("7")));
    assert_eq!(claimed.headers.get("event-type").map(String::as_str), Some("placed"));
}

#[tokio::test]
async fn what_only_postgresql_can_do_is_refused_and_the_error_says_why() {
    let refused = |name: &str| {
        let pool = SqlitePoolOptions::new().connect_lazy_with(SqliteConnectOptions::new());
        match SqliteStore::with_layout(pool, preset(name).expect("known")) {
            Err(LayoutError::Wrong { why, .. }) => why,
            answer => panic!("{name}: {answer:?}"),
        }
    };
    assert!(refused("packfinderz").contains("held row locks are for PostgreSQL"));
    assert!(refused("debezium").contains("held row locks are for PostgreSQL"));
    assert!(refused("valinor").contains("row-level security"));
}
