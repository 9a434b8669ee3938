//! An outbox in a database of its own.

use std::time::Duration;

use postrider::operate::{Change, Filter};
use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, Order, Scope};
use postrider::{ClaimedMessage, EnqueueError, Enqueued, Message, MySqlStore, Names, Store};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool};
use testkit::{MariaDb, MySqlDatabase};
use uuid::Uuid;

pub const LEASE: Duration = Duration::from_secs(30);

pub struct OnMySql {
    pub database: MySqlDatabase,
    pub pool: MySqlPool,
    pub store: MySqlStore,
}

impl OnMySql {
    pub async fn new() -> Self {
        Self::with(|options| options).await
    }

    /// With another pool.
    pub async fn with(adapt: impl FnOnce(MySqlPoolOptions) -> MySqlPoolOptions) -> Self {
        let database = empty().await;
        let pool = database.pool_with(adapt).await.expect("the database answers");
        let store = MySqlStore::new(pool.clone(), Names::default());
        store.migrate().await.expect("the migrations run");
        Self { database, pool, store }
    }

    pub async fn enqueue(&self, pool: &MySqlPool, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut transaction = pool.begin().await.expect("a transaction begins");
        let answers = self.store.outbox().enqueue_many(&mut transaction, messages).await?;
        transaction.commit().await.expect("it commits");
        Ok(answers)
    }

    pub async fn put(&self, messages: Vec<Message>) {
        self.enqueue(&self.pool, messages).await.expect("the messages are valid");
    }

    pub async fn claim(&self) -> Vec<ClaimedMessage> {
        self.store.claim(&request()).await.expect("the store claims").messages
    }

    /// Runs SQL as an operator would.
    pub async fn execute(&self, sql: impl Into<String>) {
        run(&self.pool, sql).await.expect("the statements run");
    }

    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(&self.pool).await.expect("a number")
    }
}

pub async fn empty() -> MySqlDatabase {
    let server = MariaDb::shared().await.expect("the server starts");
    server.create_database().await.expect("the database is created")
}

/// A pool whose sessions begin with these statements.
pub async fn pool_in(database: &MySqlDatabase, session: &'static str) -> MySqlPool {
    let pool = database.pool_with(|options| {
        options.after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(session).execute(connection).await.map(drop) })
        })
    });
    pool.await.expect("the database answers")
}

pub async fn run(pool: &MySqlPool, sql: impl Into<String>) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.map(drop)
}

pub fn message() -> Message {
    Message::json("shop", "order.placed", &7)
}

pub fn request() -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit: 100,
        max_bytes: u64::MAX,
        lease: LEASE,
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    }
}

/// A replay of everything dead in a scope.
pub fn replay(scope: Scope, limit: u32) -> Change {
    Change { who: "a test".into(), filter: Filter { scope, ..Filter::default() }, limit }
}

pub fn purge() -> postrider::store::Purge {
    let (finished, older_than) = (postrider::store::Finished::Delivered, Duration::from_secs(1));
    postrider::store::Purge { scope: Scope::all(), finished, older_than, limit: 10 }
}
