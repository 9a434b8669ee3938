//! The repository: the records of the table `outbox`, their state, and what operators do with them.

use std::time::Duration;

use anyhow::Result;
use postrider::operate::{Change, Filter, Operator, Record};
use postrider::{Layout, Message, PostgresStore};
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Postgres, Row, Transaction};
use uuid::Uuid;

/// The layout has no column for a namespace; all records have this one.
const NAMESPACE: &str = "outbox";

/// An operator's first question: what has gone wrong?
pub const GONE_WRONG: &str =
    "select * from outbox where status in ('failed', 'dead_lettered') order by next_attempt_at";
/// The second: what should have been tried again by now?
pub const OVERDUE: &str = "select * from outbox where status = 'failed' and next_attempt_at <= now()";

/// A record to write.
pub struct NewRecord<'a, T> {
    /// Kafka's topic.
    pub topic: &'static str,
    /// Kafka's key.
    pub key: &'a str,
    /// Written once within its topic, whoever tries again.
    pub idempotency_key: &'a str,
    /// The event.
    pub payload: &'a T,
}

/// The repository. Cheap to clone.
#[derive(Clone)]
pub struct OutboxRepository {
    store: PostgresStore,
    lock_timeout: Duration,
}

impl OutboxRepository {
    /// Makes the table unless it is there. What a worker has begun is free again after the time-out.
    pub async fn open(pool: PgPool, lock_timeout: Duration) -> Result<Self> {
        let store = PostgresStore::with_layout(pool, Layout { lock_timeout, ..Layout::talkie() })?;
        store.migrate().await?;
        Ok(Self { store, lock_timeout })
    }

    /// The records as a publisher sees them.
    pub fn store(&self) -> PostgresStore {
        self.store.clone()
    }

    /// For how long a worker may leave a record publishing before another takes it.
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Writes a record in the caller's transaction. Answers its id, or that of the record with the same key.
    pub async fn add<T: Serialize>(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        new: NewRecord<'_, T>,
    ) -> Result<Uuid> {
        let message = Message::json(NAMESPACE, new.topic, new.payload).key(new.key).dedupe_key(new.idempotency_key);
        Ok(self.store.outbox().enqueue(transaction, message).await?.id())
    }

    /// The dead letters, those that died first before the others.
    pub async fn dead_letters(&self) -> Result<Vec<Record>> {
        Ok(self.store.dead(&Filter::default(), None, 100).await?)
    }

    /// Sends dead letters again; the audit table says who did.
    pub async fn resend(&self, who: &str, ids: Vec<Uuid>) -> Result<Vec<Uuid>> {
        Ok(self.store.replay(&change(who, ids)).await?)
    }

    /// Removes dead letters for good; the audit table says who did.
    pub async fn purge(&self, who: &str, ids: Vec<Uuid>) -> Result<Vec<Uuid>> {
        Ok(self.store.discard(&change(who, ids)).await?)
    }

    /// Asks one of the two questions.
    pub async fn ask(&self, question: &'static str) -> Result<Vec<Seen>> {
        let rows = sqlx::query(question).fetch_all(self.store.pool()).await?;
        Ok(rows.iter().map(seen).collect::<Result<_, _>>()?)
    }
}

fn change(who: &str, ids: Vec<Uuid>) -> Change {
    Change { who: who.to_owned(), filter: Filter { ids: Some(ids), ..Filter::default() }, limit: 100 }
}

/// What an operator looks at in a row.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Seen {
    pub id: Uuid,
    pub status: String,
    pub topic: String,
    pub key: Option<String>,
    pub retry_count: i32,
    pub last_error: Option<String>,
}

fn seen(row: &PgRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        id: row.try_get("id")?,
        status: row.try_get("status")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        retry_count: row.try_get("retry_count")?,
        last_error: row.try_get("last_error")?,
    })
}
