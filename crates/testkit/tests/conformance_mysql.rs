//! The conformance suite on MariaDB (or MySQL, see `testkit::mariadb`), with sessions in UTC and in another time zone: a
//! database of its own for every promise.

use std::sync::Arc;
use std::time::Duration;

use postrider::store::Scope;
use postrider::{EnqueueError, Enqueued, Message, MySqlStore, Names, Operator, Outbox, State, Store};
use sea_orm::{DatabaseConnection, SqlxMySqlConnector};
use sqlx::mysql::{MySqlPoolOptions, MySqlRow};
use sqlx::{MySql, MySqlPool, Row, Transaction};
use testkit::MariaDb;
use testkit::conformance::{Harness, RowView, SeaOrm, WithSeaOrm};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// A database whose clients' sessions are in UTC, or in Calcutta.
struct OnMySql<const CALCUTTA: bool> {
    store: MySqlStore,
    pool: MySqlPool,
}

type InUtc = OnMySql<false>;
type InCalcutta = OnMySql<true>;

impl<const CALCUTTA: bool> Harness for OnMySql<CALCUTTA> {
    type Transaction = Transaction<'static, MySql>;

    async fn fresh() -> Self {
        let server = MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let zone = if CALCUTTA { "+05:30" } else { "+00:00" };
        let access = database.access().clone().timezone(Some(zone.to_owned()));
        let pool = MySqlPoolOptions::new().max_connections(10).connect_with(access).await.expect("it answers");
        let store = MySqlStore::new(pool.clone(), Names::default());
        store.migrate().await.expect("the migrations run");
        Self { store, pool }
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
        self.store.outbox().enqueue_many(transaction, messages).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.expect("it commits");
    }

    async fn roll_back(&self, transaction: Self::Transaction) {
        transaction.rollback().await.expect("it rolls back");
    }

    async fn rows(&self) -> Vec<RowView> {
        let rows = sqlx::query(ROWS).fetch_all(&self.pool).await.expect("the rows can be read");
        rows.iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let update = sqlx::query("update outbox_messages set status = ? where id = ?");
        let update = update.bind(status.as_str()).bind(id.hyphenated());
        let done = update.execute(&self.pool).await.expect("the row can be edited");
        assert_eq!(done.rows_affected(), 1);
    }

    /// Every decision compares a time of a row with the server's, so making all rows older is time passing.
    async fn pass_time(&self, duration: Duration) {
        let micros = -i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        let update = sqlx::query(PASS_TIME).bind(micros).bind(micros).bind(micros).bind(micros).bind(micros);
        update.execute(&self.pool).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let now = "select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6))";
        sqlx::query_scalar(now).fetch_one(&self.pool).await.expect("the server knows the time")
    }
}

const ROWS: &str = "
    select id, status, attempts, max_attempts, locked_by, last_error,
           timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', next_attempt_at) as next_attempt_at,
           timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', locked_until) as locked_until,
           timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', created_at) as created_at,
           timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', updated_at) as updated_at,
           timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', delivered_at) as delivered_at
    from outbox_messages order by outbox_messages.created_at, seq";

const PASS_TIME: &str = "
    update outbox_messages
    set next_attempt_at = timestampadd(microsecond, ?, next_attempt_at),
        locked_until = timestampadd(microsecond, ?, locked_until),
        created_at = timestampadd(microsecond, ?, created_at),
        updated_at = timestampadd(microsecond, ?, updated_at),
        delivered_at = timestampadd(microsecond, ?, delivered_at)";

fn view(row: &MySqlRow) -> Result<RowView, sqlx::Error> {
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

testkit::conformance!(InUtc);

impl SeaOrm for InUtc {
    fn connection(&self) -> (DatabaseConnection, Outbox) {
        (SqlxMySqlConnector::from_sqlx_mysql_pool(self.pool.clone()), self.store.outbox())
    }
}

mod with_sea_orm {
    use super::*;

    testkit::conformance_of_producers!(WithSeaOrm<InUtc>);
}

mod r10_in_another_time_zone {
    use super::*;

    testkit::conformance!(InCalcutta);
}

/// Other stores have no row locks that a client could hold.
#[tokio::test]
async fn s0_56_claim_and_sweep_pass_over_rows_that_somebody_has_locked() {
    let message = || Message::json("shop", "order.placed", &7);
    let scope = Scope::all();
    for crashed in [false, true] {
        let h = InUtc::fresh().await;
        let ids = h.put_all([message(), message()]).await;
        if crashed {
            assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 2);
            h.expire().await;
        }
        let mut holder = h.begin().await;
        let lock = sqlx::query("select 1 from outbox_messages where id = ? for update").bind(ids[0].hyphenated());
        lock.execute(&mut *holder).await.expect("the row can be locked");
        let claim = tokio::time::timeout(Duration::from_secs(5), h.claim_all(Uuid::new_v4()));
        let claimed = claim.await.expect("the claim does not wait for the lock");
        assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), [ids[1]]);
        let sweep = tokio::time::timeout(Duration::from_secs(5), h.store.sweep(&scope, 1, 10));
        assert_eq!(sweep.await.expect("the sweep does not wait").expect("swept").buried, [] as [Uuid; 0]);
        h.roll_back(holder).await;
        assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 1);
    }
}
