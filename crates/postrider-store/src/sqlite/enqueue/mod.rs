//! Writing rows in a caller's SQLite transaction, whatever driver opened it.
//!
//! A driver says how to run two statements; the rest they share. The insert skips a dedupe key that is there already. As
//! there is one writer at a time, the first message of a transaction that did not begin with the write lock waits for
//! it, for as long as the connection's busy time-out says, and after that the error is retryable. With the lock, what
//! is there cannot change any more: a key is there or it is free.
//!
//! Some errors make SQLite end a transaction by itself: a full disk, a failing one, a constraint with
//! `on conflict rollback`, a trigger with `raise(rollback, …)`. What is run after that is committed at once, each
//! statement alone. So after an error of any statement roll the transaction back, and enqueue nothing more in it. With
//! rusqlite an enqueue then answers [`EnqueueError::NotInTransaction`]; sqlx and SeaORM do not tell, so with them the
//! message would be sent although the change is gone.

#[cfg(feature = "rusqlite")]
mod rusqlite;
#[cfg(feature = "sea-orm")]
pub(crate) mod sea_orm;
mod sqlx;

use postrider_core::message::{Enqueued, NewRow};
use serde_json::json;
use uuid::Uuid;

#[cfg(feature = "rusqlite")]
pub use self::rusqlite::RusqliteTransaction;
use super::statements::EnqueueStatements;
use crate::clock::{Clock, SystemClock};
use crate::enqueue::rounds::{Writer, insert_rows};
use crate::enqueue::{EnqueueError, Outbox};
use crate::layout::dialect::{Given, header};
use crate::sql::{Portioned, Sql};

/// A parameter, whatever the driver.
enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Owned(String),
    Bytes(&'a [u8]),
    Id(Uuid),
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// A row of `enqueue.sql`: what the table has columns for, in their order.
fn columns<'a>(row: &'a NewRow, now: i64, given: &[Given]) -> Vec<Value<'a>> {
    // A delay has to be moved when the clock is set back, a time of the day has not, and the row says which one it has.
    let (due_at, updated_at) = match (row.deliver_at_micros, row.delay_micros.unwrap_or_default()) {
        (Some(at), _) => (at, now),
        (None, 0) => (now, now),
        (None, delay) => (now.saturating_add(delay), now.saturating_add(1)),
    };
    let value = |given: &Given| match given {
        Given::Id => Value::Id(row.id),
        Given::Namespace => Value::Text(&row.namespace),
        Given::Topic => Value::Text(&row.topic),
        Given::Key => row.key.as_deref().into(),
        Given::Tenant => row.tenant_id.map_or(Value::Null, Value::Id),
        Given::DedupeKeyOrId if row.dedupe_key.is_none() => Value::Id(row.id),
        Given::DedupeKey | Given::DedupeKeyOrId => row.dedupe_key.as_deref().into(),
        Given::Payload => Value::Text(&row.payload),
        Given::PayloadBytes => row.payload_bytes.as_deref().map_or(Value::Null, Value::Bytes),
        Given::PayloadAsBytes => Value::Bytes(row.payload_bytes.as_deref().unwrap_or(row.payload.as_bytes())),
        Given::Headers => Value::Text(&row.headers),
        Given::Header(name) => header(row, name).map_or(Value::Null, Value::Owned),
        Given::DueAt => Value::Integer(due_at),
        Given::MaxAttempts => row.max_attempts.map_or(Value::Null, |attempts| Value::Integer(attempts.into())),
        Given::CreatedAt => Value::Integer(now),
        Given::UpdatedAt => Value::Integer(updated_at),
        #[cfg(feature = "mysql")]
        Given::DeliverAt | Given::Delay => Value::Null,
    };
    given.iter().map(value).collect()
}

/// The parameter of `enqueue_find.sql`.
fn keys(rows: &[&NewRow]) -> String {
    let key = |row: &&NewRow| json!([row.namespace, row.topic, row.dedupe_key]);
    serde_json::Value::from_iter(rows.iter().map(key)).to_string()
}

/// What a call writes with.
#[derive(Clone, Copy)]
struct Plan<'a> {
    statements: &'a EnqueueStatements,
    now: i64,
}

impl<'a> Plan<'a> {
    fn of(outbox: &'a Outbox) -> Self {
        let now = outbox.neighbours.as_ref().map_or_else(|| SystemClock.now_micros(), |near| near.clock.now_micros());
        Self { statements: &outbox.statements.sqlite, now }
    }

    fn insert(&self, rows: &[&NewRow]) -> &'a Portioned {
        match rows.iter().any(|row| row.dedupe_key.is_some()) {
            true => &self.statements.enqueue_deduplicating,
            false => &self.statements.enqueue,
        }
    }

    fn values<'r>(&self, rows: &[&'r NewRow]) -> Vec<Value<'r>> {
        rows.iter().flat_map(|row| columns(row, self.now, &self.statements.given)).collect()
    }
}

/// Tells sleeping dispatchers of the same process that a commit is near.
fn tell_neighbours(outbox: &Outbox) {
    if let Some(neighbours) = &outbox.neighbours {
        neighbours.commit_is_near();
    }
}

/// How an asynchronous driver runs the producer's statements.
trait Driver: Send {
    /// Runs `enqueue.sql`; the ids that were written.
    fn insert(
        &mut self,
        sql: &Sql,
        values: Vec<Value<'_>>,
    ) -> impl Future<Output = Result<Vec<Uuid>, EnqueueError>> + Send;

    /// Runs `enqueue_find.sql`; pairs of a position, counted from 0, and the id there.
    fn find(&mut self, sql: &Sql, keys: String) -> impl Future<Output = Result<Vec<(i64, Uuid)>, EnqueueError>> + Send;
}

struct Portions<'a, D> {
    driver: D,
    plan: Plan<'a>,
}

async fn insert(driver: impl Driver, outbox: &Outbox, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    let answers = insert_rows(&mut Portions { driver, plan: Plan::of(outbox) }, rows).await?;
    tell_neighbours(outbox);
    Ok(answers)
}

impl<D: Driver> Writer for Portions<'_, D> {
    async fn write(&mut self, rows: &[&NewRow]) -> Result<Vec<Uuid>, EnqueueError> {
        let mut written = Vec::with_capacity(rows.len());
        for (sql, portion) in self.plan.insert(rows).split(rows) {
            written.extend(self.driver.insert(sql, self.plan.values(portion)).await?);
        }
        Ok(written)
    }

    async fn find(&mut self, rows: &[&NewRow]) -> Result<Vec<(usize, Uuid)>, EnqueueError> {
        Ok(positions(self.driver.find(&self.plan.statements.enqueue_find, keys(rows)).await?))
    }
}

fn positions(found: Vec<(i64, Uuid)>) -> Vec<(usize, Uuid)> {
    found.into_iter().filter_map(|(position, id)| Some((usize::try_from(position).ok()?, id))).collect()
}
