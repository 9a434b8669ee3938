//! Stores of the presets, with short ways to write, claim and look.

use std::time::Duration;

use postrider::layout::Layout;
use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, Order, Scope};
use postrider::{ClaimedMessage, Lease, Message, PostgresStore, Store};
use sqlx::PgPool;
use uuid::Uuid;

use crate::tables;

/// A preset's table with its store.
pub struct Scene {
    pub store: PostgresStore,
    pub pool: PgPool,
}

impl Scene {
    pub async fn of(layout: Layout) -> Self {
        let (_, pool) = tables::empty().await;
        tables::channels(&pool).await;
        let store = PostgresStore::with_layout(pool.clone(), layout).expect("the layout makes sense");
        store.migrate().await.expect("the migrations run");
        Self { store, pool }
    }

    pub async fn put(&self, message: Message) -> Uuid {
        let mut transaction = self.pool.begin().await.expect("begun");
        let enqueued = self.store.outbox().enqueue(&mut transaction, message).await.expect("the message fits");
        transaction.commit().await.expect("committed");
        enqueued.id()
    }

    pub async fn claim(&self) -> Vec<ClaimedMessage> {
        self.claim_up_to(10, 100).await
    }

    pub async fn claim_up_to(&self, max_attempts: i32, limit: u32) -> Vec<ClaimedMessage> {
        let request = ClaimRequest {
            scope: Scope::all(),
            worker: Uuid::new_v4(),
            limit,
            max_bytes: u64::MAX,
            lease: Duration::from_secs(30),
            max_attempts,
            order: ClaimOrder::Due,
            waits: Order::None,
            followers: LARGEST_CLAIM,
            thorough: false,
        };
        self.store.claim(&request).await.expect("the store claims").messages
    }

    pub async fn lease(&self) -> Lease {
        let claimed = self.claim().await;
        assert_eq!(claimed.len(), 1);
        claimed[0].lease
    }

    pub async fn run(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.expect("it runs");
    }

    /// A row as JSON, by its id.
    pub async fn row(&self, id: Uuid) -> serde_json::Value {
        let sql = format!("select to_jsonb(t)::text from {} as t where id = $1", self.store.names().table());
        let text: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(id).fetch_one(&self.pool).await.expect("there");
        serde_json::from_str(&text).expect("JSON")
    }
}
