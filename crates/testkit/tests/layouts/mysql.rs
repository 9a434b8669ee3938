//! Tables of other shapes on MariaDB (or MySQL, see `testkit::mariadb`): what they keep of the promises, and what they do not
//! and why.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use postrider::layout::{Ability, LayoutError, preset};
use postrider::{EnqueueError, Enqueued, Message, MySqlStore, Operator, State};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, MySqlPool, Row, Transaction};
use testkit::MariaDb;
use testkit::conformance::{Harness, RowView};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::shapes::{self, DebeziumKeep, Modkit, Own, Shape, Talkie, listed};

/// A database with such a table.
struct OnMySql<S> {
    store: MySqlStore,
    pool: MySqlPool,
    _shape: PhantomData<S>,
}

/// Microseconds since 1970 of a time.
fn micros(time: &str) -> String {
    format!("timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', {time})")
}

impl<S: Shape> Harness for OnMySql<S> {
    type Transaction = Transaction<'static, MySql>;

    async fn fresh() -> Self {
        let server = MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = MySqlPoolOptions::new().max_connections(10).connect_with(database.access().clone());
        let pool = pool.await.expect("it answers");
        let store = MySqlStore::with_layout(pool.clone(), S::layout()).expect("the layout makes sense");
        if !S::MADE.is_empty() {
            sqlx::raw_sql(S::MADE).execute(&pool).await.expect("the table is made");
        }
        store.migrate().await.expect("the migrations run");
        Self { store, pool, _shape: PhantomData }
    }

    fn cannot(promise: &str) -> Option<&'static str> {
        listed(&[S::CANNOT], promise)
    }

    fn can(ability: Ability) -> bool {
        S::layout().can(ability)
    }

    fn store(&self) -> Arc<dyn Operator> {
        Arc::new(self.store.clone())
    }

    async fn begin(&self) -> Self::Transaction {
        self.pool.begin().await.expect("a transaction begins")
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
            "select id, {} as status, {} as attempts, {} as locked_by, last_error, {} as next_attempt_at, {} as created_at,
               case when {} then {} + {} end as locked_until, {} as updated_at, {} as delivered_at
             from {table} order by {table}.created_at, id",
            S::STATUS,
            S::ATTEMPTS,
            S::LOCKED_BY,
            micros("next_attempt_at"),
            micros("created_at"),
            S::IS_LOCKED,
            micros(S::LOCKED),
            S::LOCK_TIMEOUT,
            micros(S::UPDATED),
            micros(S::DELIVERED),
            table = S::TABLE
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.pool).await.expect("the rows can be read");
        rows.iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let update = format!("update {} set status = ? where id = ?", S::TABLE);
        let update = sqlx::query(AssertSqlSafe(update)).bind(S::word(status)).bind(id.hyphenated());
        assert_eq!(update.execute(&self.pool).await.expect("the row can be edited").rows_affected(), 1);
    }

    /// Every decision compares a time of a row with the server's, so making all rows older is time passing.
    async fn pass_time(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        let earlier = S::TIMES.iter().map(|time| format!("{time} = timestampadd(microsecond, -{micros}, {time})"));
        let update = format!("update {} set {}", S::TABLE, earlier.collect::<Vec<_>>().join(", "));
        sqlx::query(AssertSqlSafe(update)).execute(&self.pool).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let now = "select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6))";
        sqlx::query_scalar(now).fetch_one(&self.pool).await.expect("the server knows the time")
    }
}

fn view(row: &MySqlRow) -> Result<RowView, sqlx::Error> {
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
    testkit::conformance!(OnMySql<Modkit>);
}

mod talkie {
    use super::*;
    testkit::conformance!(OnMySql<Talkie>);
}

mod debezium_keep {
    use super::*;
    testkit::conformance!(OnMySql<DebeziumKeep>);
}

#[tokio::test]
async fn r13_stale_settles_of_a_row_that_names_no_worker_change_nothing() {
    shapes::stale_settles_change_nothing::<OnMySql<Talkie>>().await;
}

#[tokio::test]
async fn rows_are_given_up_by_way_of_the_owner_s_word_for_failed_ones() {
    let h = OnMySql::<Talkie>::fresh().await;
    let state_machine = "create trigger state_machine before update on outbox for each row
        if old.status = 'publishing' and new.status = 'dead_lettered' then signal sqlstate '45000'; end if";
    sqlx::raw_sql(state_machine).execute(&h.pool).await.expect("a trigger is made");
    shapes::rows_are_given_up_by_way_of_failed(&h).await;
}

#[tokio::test]
async fn s2_27_a_row_that_an_older_publisher_left_without_a_time_is_claimed_again() {
    let h = OnMySql::<Talkie>::fresh().await;
    let nullable = "alter table outbox modify retry_count int null default 0, modify next_attempt_at datetime(6) null";
    sqlx::raw_sql(nullable).execute(&h.pool).await.expect("altered");
    let forget = async |what: &str| {
        let sql = AssertSqlSafe(format!("update outbox set {what}"));
        sqlx::query(sql).execute(&h.pool).await.expect("written");
    };
    shapes::rows_without_times_are_delivered(&h, forget).await;
}

#[tokio::test]
async fn ids_may_be_written_in_upper_case_or_without_hyphens() {
    let h = OnMySql::<Talkie>::fresh().await;
    let rewrite = async |how: &str| {
        let sql = format!("update outbox set id = {how} where status = 'pending'");
        sqlx::query(AssertSqlSafe(sql)).execute(&h.pool).await.expect("written");
    };
    shapes::ids_may_be_written_in_other_ways(&h, rewrite).await;
}

#[tokio::test]
async fn uuids_may_be_bytes_in_a_table_that_was_there() {
    shapes::uuids_may_be_bytes::<OnMySql<Own<true>>>().await;
}

#[tokio::test]
async fn what_only_postgresql_can_do_is_refused_and_the_error_says_why() {
    let refused = |name: &str| {
        let pool = MySqlPoolOptions::new().connect_lazy_with(MySqlConnectOptions::new());
        match MySqlStore::with_layout(pool, preset(name).expect("known")) {
            Err(LayoutError::Wrong { why, .. }) => why,
            answer => panic!("{name}: {answer:?}"),
        }
    };
    assert!(refused("packfinderz").contains("held row locks are for PostgreSQL"));
    assert!(refused("debezium").contains("held row locks are for PostgreSQL"));
    assert!(refused("valinor").contains("row-level security"));
}
