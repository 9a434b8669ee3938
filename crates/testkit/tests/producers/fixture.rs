//! A migrated outbox in a database of its own, beside a table of the application.

use anyhow::Result;
use postrider::names::Names;
use postrider::{Enqueued, Message, Outbox, PostgresStore};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use testkit::{Database, Postgres};
use uuid::Uuid;

pub struct Fixture {
    pub database: Database,
    pub pool: PgPool,
    pub outbox: Outbox,
}

impl Fixture {
    pub async fn new() -> Result<Self> {
        Self::with_connections(10).await
    }

    pub async fn with_connections(connections: u32) -> Result<Self> {
        let database = Postgres::shared().await?.create_database().await?;
        let pool = database.pool_with(|options| options.max_connections(connections)).await?;
        let store = PostgresStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        sqlx::raw_sql("create table changes (note text not null, at timestamptz not null default now())")
            .execute(&pool)
            .await?;
        Ok(Self { outbox: store.outbox(), database, pool })
    }

    /// Enqueues one message in a transaction of its own.
    pub async fn enqueue(&self, message: Message) -> Result<Enqueued> {
        let mut transaction = self.pool.begin().await?;
        let answer = self.outbox.enqueue(&mut transaction, message).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    /// All rows in the order they were written, every column of each.
    pub async fn rows(&self) -> Result<Vec<Value>> {
        Ok(sqlx::query_scalar("select to_jsonb(row) from outbox_messages as row order by created_at, seq")
            .fetch_all(&self.pool)
            .await?)
    }

    /// The ids of all rows in the order they were written.
    pub async fn ids(&self) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar("select id from outbox_messages order by created_at, seq").fetch_all(&self.pool).await?)
    }

    /// What a query without parameters answers, as one number.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await?)
    }

    /// How many changes the application has committed.
    pub async fn changes(&self) -> Result<i64> {
        self.count("select count(*) from changes").await
    }
}

/// A small message to the topic `order.placed` of the namespace `shop`.
pub fn order(number: u64) -> Message {
    Message::json("shop", "order.placed", &serde_json::json!({ "order": number }))
}
