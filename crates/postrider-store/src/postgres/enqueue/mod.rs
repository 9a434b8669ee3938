//! Writing rows in a caller's PostgreSQL transaction, whatever driver opened it.
//!
//! A driver says how to run four statements; the rest they share. The statement inserts and
//! skips a dedupe key that is there already. On a conflict with a transaction that is still open, PostgreSQL
//! waits for it to end: if it rolls back our row goes in, if it commits ours is skipped and a second statement,
//! with a newer snapshot, finds the winner's id. Nothing of this aborts the caller's transaction. Under
//! REPEATABLE READ the winner is invisible and PostgreSQL itself raises a serialisation failure instead.

#[cfg(feature = "diesel-async")]
mod diesel;
#[cfg(feature = "sea-orm")]
pub(crate) mod sea_orm;
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use postrider_core::message::{Enqueued, NewRow};
use uuid::Uuid;

#[cfg(feature = "diesel-async")]
pub use self::diesel::DieselTransaction;
use super::statements::EnqueueStatements;
use crate::enqueue::rounds::{Writer, insert_rows};
use crate::enqueue::{EnqueueError, Outbox};
use crate::sql::Sql;

/// How a driver runs the producer's statements.
trait Driver: Send {
    /// Runs `enqueue_one.sql`; whether the row was written.
    fn insert_one(&mut self, sql: &Sql, row: &NewRow) -> impl Future<Output = Result<bool, EnqueueError>> + Send;

    /// Runs `enqueue_all.sql`; how many rows were written.
    fn insert_all(&mut self, sql: &Sql, columns: Columns<'_>)
    -> impl Future<Output = Result<u64, EnqueueError>> + Send;

    /// Runs `enqueue_many.sql`; the ids that were written.
    fn insert_many(
        &mut self,
        sql: &Sql,
        columns: Columns<'_>,
    ) -> impl Future<Output = Result<Vec<Uuid>, EnqueueError>> + Send;

    /// Runs `enqueue_find.sql`; pairs of a position, counted from 1, and the id there.
    fn find(
        &mut self,
        sql: &Sql,
        keys: Keys<'_>,
    ) -> impl Future<Output = Result<Vec<(i64, Uuid)>, EnqueueError>> + Send;
}

/// What the statements take for a message without headers.
const NO_HEADERS: &str = "{}";

/// Rows turned into columns, one array parameter each.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    namespaces: Vec<&'a str>,
    topics: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
    tenants: Vec<Option<Uuid>>,
    dedupe_keys: Vec<Option<&'a str>>,
    payloads: Vec<&'a str>,
    payload_bytes: Vec<Option<&'a [u8]>>,
    headers: Vec<&'a str>,
    deliver_at: Vec<Option<i64>>,
    delays: Vec<Option<i64>>,
    max_attempts: Vec<Option<i32>>,
}

impl<'a> Columns<'a> {
    fn of(rows: &[&'a NewRow]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            columns.ids.push(row.id);
            columns.namespaces.push(&row.namespace);
            columns.topics.push(&row.topic);
            columns.keys.push(row.key.as_deref());
            columns.tenants.push(row.tenant_id);
            columns.dedupe_keys.push(row.dedupe_key.as_deref());
            columns.payloads.push(&row.payload);
            columns.payload_bytes.push(row.payload_bytes.as_deref());
            columns.headers.push(&row.headers);
            columns.deliver_at.push(row.deliver_at_micros);
            columns.delays.push(row.delay_micros);
            columns.max_attempts.push(row.max_attempts);
        }
        // A column of nulls is as well an empty one: the server fills it up, and need not read it.
        leave_out_nulls(&mut columns.keys);
        leave_out_nulls(&mut columns.tenants);
        leave_out_nulls(&mut columns.dedupe_keys);
        leave_out_nulls(&mut columns.payload_bytes);
        leave_out_nulls(&mut columns.deliver_at);
        leave_out_nulls(&mut columns.delays);
        leave_out_nulls(&mut columns.max_attempts);
        if columns.headers.iter().all(|headers| *headers == NO_HEADERS) {
            columns.headers.clear();
        }
        columns
    }
}

fn leave_out_nulls<T>(column: &mut Vec<Option<T>>) {
    if column.iter().all(Option::is_none) {
        column.clear();
    }
}

/// Where to look for rows that hold a dedupe key.
#[derive(Default)]
struct Keys<'a> {
    namespaces: Vec<&'a str>,
    topics: Vec<&'a str>,
    dedupe_keys: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    fn of(rows: &[&'a NewRow]) -> Self {
        let mut keys = Self::default();
        for row in rows {
            keys.namespaces.push(&row.namespace);
            keys.topics.push(&row.topic);
            keys.dedupe_keys.push(row.dedupe_key.as_deref().unwrap_or_default());
        }
        keys
    }
}

/// Writes through a driver.
struct Arrays<'a, D> {
    driver: D,
    statements: &'a EnqueueStatements,
}

async fn insert(driver: impl Driver, outbox: &Outbox, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    insert_rows(&mut Arrays { driver, statements: &outbox.statements.postgres }, rows).await
}

impl<D: Driver> Writer for Arrays<'_, D> {
    async fn write(&mut self, rows: &[&NewRow]) -> Result<Vec<Uuid>, EnqueueError> {
        let has_keys = rows.iter().any(|row| row.dedupe_key.is_some());
        let EnqueueStatements { enqueue_one, enqueue_many, .. } = self.statements;
        match rows {
            [row] => {
                let sql = if has_keys { &enqueue_one.deduplicating } else { &enqueue_one.plain };
                let written = self.driver.insert_one(sql, row).await?;
                Ok(written.then_some(row.id).into_iter().collect())
            }
            rows if has_keys => self.driver.insert_many(&enqueue_many.deduplicating, Columns::of(rows)).await,
            rows => {
                let written = self.driver.insert_all(&enqueue_many.plain, Columns::of(rows)).await?;
                match written == rows.len() as u64 {
                    true => Ok(rows.iter().map(|row| row.id).collect()),
                    // Only a trigger of the table's owner does that; which rows are missing, nobody says.
                    false => Err(EnqueueError::Database(
                        format!("{written} of {} rows were written, the others were dropped by a trigger", rows.len())
                            .into(),
                    )),
                }
            }
        }
    }

    async fn find(&mut self, rows: &[&NewRow]) -> Result<Vec<(usize, Uuid)>, EnqueueError> {
        let found = self.driver.find(&self.statements.enqueue_find, Keys::of(rows)).await?;
        Ok(found.into_iter().filter_map(|(position, id)| Some((usize::try_from(position - 1).ok()?, id))).collect())
    }

    async fn hides(&mut self, rows: &[&NewRow]) -> Result<bool, EnqueueError> {
        Ok(!self.driver.find(&self.statements.enqueue_hidden, Keys::of(rows)).await?.is_empty())
    }
}
