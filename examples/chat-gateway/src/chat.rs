//! The application: people write messages into rooms. It knows that events are written, and neither Kafka nor how they get there.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::outbox::{NewRecord, OutboxRepository};

/// The topic of the event that a message was written.
pub const MESSAGE_CREATED: &str = "chat.message.created";

const TABLES: &str = "
create table messages (id uuid primary key, room text not null, author text not null, body text not null)";

/// The event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MessageCreated {
    pub message_id: Uuid,
    pub room: String,
    pub author: String,
    pub body: String,
}

/// The chat. Cheap to clone.
#[derive(Clone)]
pub struct Chat {
    pool: PgPool,
    outbox: OutboxRepository,
}

impl Chat {
    /// Makes the chat's own table, beside that of the outbox.
    pub async fn open(pool: PgPool, outbox: OutboxRepository) -> Result<Self> {
        sqlx::raw_sql(TABLES).execute(&pool).await.context("cannot make the chat's table")?;
        Ok(Self { pool, outbox })
    }

    /// Writes a message, in a transaction of its own; answers the id of its event.
    pub async fn post(&self, room: &str, author: &str, body: &str) -> Result<Uuid> {
        let mut transaction = self.pool.begin().await?;
        let event = self.post_in(&mut transaction, room, author, body).await?;
        transaction.commit().await?;
        Ok(event)
    }

    /// Writes a message and its event: both are there once the transaction commits, or neither is.
    pub async fn post_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        room: &str,
        author: &str,
        body: &str,
    ) -> Result<Uuid> {
        ensure!(!body.trim().is_empty(), "the message is empty; write something");
        let message_id = Uuid::now_v7();
        sqlx::query("insert into messages (id, room, author, body) values ($1, $2, $3, $4)")
            .bind(message_id)
            .bind(room)
            .bind(author)
            .bind(body)
            .execute(&mut **transaction)
            .await?;
        let [room, author, body] = [room, author, body].map(str::to_owned);
        let event = MessageCreated { message_id, room, author, body };
        // By its room as the key, the events of a room stay in one partition.
        let record = NewRecord {
            topic: MESSAGE_CREATED,
            key: &event.room,
            idempotency_key: &message_id.to_string(),
            payload: &event,
        };
        self.outbox.add(transaction, record).await
    }

    /// How many messages there are.
    pub async fn count(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from messages").fetch_one(&self.pool).await?)
    }
}
