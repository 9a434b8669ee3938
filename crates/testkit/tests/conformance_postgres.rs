//! The conformance suite on PostgreSQL, directly and through PgBouncer in transaction mode (r42): a database of its
//! own for every promise.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use postrider::store::Scope;
use postrider::{EnqueueError, Enqueued, Message, Names, Operator, PostgresStore, State, Store};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{PgPool, Postgres, Row, Transaction};
use testkit::conformance::{Harness, RowView};
use testkit::{Database, PgBouncer};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// A database, with the store and its producers connected to it directly or through a transaction pooler.
struct OnPostgres<const POOLED: bool> {
    store: PostgresStore,
    pool: PgPool,
    producers: PgPool,
}

type Direct = OnPostgres<false>;
type Pooled = OnPostgres<true>;

/// One pooler serves all databases of the shared server.
async fn pooler() -> &'static PgBouncer {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    let start = || async {
        let server = testkit::Postgres::shared().await.expect("the server starts");
        PgBouncer::start(server, "postgres").await.expect("PgBouncer starts")
    };
    POOLER.get_or_init(start).await
}

async fn pooled(database: &Database) -> PgPool {
    let url = database.url_via(pooler().await.port());
    let options =
        PgConnectOptions::from_str(&url).expect("a good address").statement_cache_capacity(0).extra_float_digits(None);
    PgPoolOptions::new().max_connections(20).connect_with(options).await.expect("the pooler answers")
}

impl<const POOLED: bool> Harness for OnPostgres<POOLED> {
    type Transaction = Transaction<'static, Postgres>;

    async fn fresh() -> Self {
        let server = testkit::Postgres::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = database.pool().await.expect("the database answers");
        let producers = if POOLED { pooled(&database).await } else { pool.clone() };
        let store = PostgresStore::new(producers.clone(), Names::default()).behind_pooler(POOLED);
        store.migrate().await.expect("the migrations run");
        Self { store, pool, producers }
    }

    fn store(&self) -> Arc<dyn Operator> {
        Arc::new(self.store.clone())
    }

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
        let rows = sqlx::query(ROWS).fetch_all(&self.pool).await.expect("the rows can be read");
        rows.iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let update = sqlx::query("update outbox_messages set status = $2 where id = $1");
        let done = update.bind(id).bind(status.as_str()).execute(&self.pool).await.expect("the row can be edited");
        assert_eq!(done.rows_affected(), 1);
    }

    /// Every decision compares a time of a row with `now()`, so making all rows older is time passing.
    async fn pass_time(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        sqlx::query(PASS_TIME).bind(micros).execute(&self.pool).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        sqlx::query_scalar(now).fetch_one(&self.pool).await.expect("the server knows the time")
    }
}

const ROWS: &str = "
    select id, status, attempts, max_attempts, locked_by, last_error,
           (extract(epoch from next_attempt_at) * 1000000)::bigint as next_attempt_at,
           (extract(epoch from locked_until) * 1000000)::bigint as locked_until,
           (extract(epoch from created_at) * 1000000)::bigint as created_at,
           (extract(epoch from updated_at) * 1000000)::bigint as updated_at,
           (extract(epoch from delivered_at) * 1000000)::bigint as delivered_at
    from outbox_messages order by created_at, seq";

const PASS_TIME: &str = "
    update outbox_messages as row
    set next_attempt_at = next_attempt_at - passed, locked_until = locked_until - passed,
        created_at = created_at - passed, updated_at = updated_at - passed, delivered_at = delivered_at - passed
    from (select $1::bigint * interval '1 microsecond' as passed) as time";

fn view(row: &PgRow) -> Result<RowView, sqlx::Error> {
    Ok(RowView {
        id: row.try_get("id")?,
        status: State::parse(row.try_get("status")?).expect("the word is checked"),
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row.try_get("locked_by")?,
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
    })
}

testkit::conformance!(Direct);

mod r42_through_a_transaction_pooler {
    use super::*;

    testkit::conformance!(Pooled);
}

/// Other stores have no row locks that a client could hold, so this is about PostgreSQL alone.
#[tokio::test]
async fn s0_56_claim_and_sweep_pass_over_rows_that_somebody_has_locked() {
    let message = || Message::json("shop", "order.placed", &7);
    let scope = Scope::all();
    for crashed in [false, true] {
        let h = Direct::fresh().await;
        let ids = h.put_all([message(), message()]).await;
        if crashed {
            assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 2);
            h.expire().await;
        }
        let mut holder = h.begin().await;
        let lock = sqlx::query("select from outbox_messages where id = $1 for update").bind(ids[0]);
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
