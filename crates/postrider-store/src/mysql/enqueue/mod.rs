//! Writing rows in a caller's MySQL transaction, whatever driver opened it.
//!
//! Rows without dedupe keys are inserted and that is all. Producers with the same key take turns: each locks a row of a
//! table that is there for nothing else, chosen by the key's checksum, and so waits for whoever has the key. Waiting in
//! the unique index would lock the gap beside the key as well, and the first producer's next message could not go there:
//! a deadlock where there was only a duplicate. Then a look without locks finds what was committed before the caller's
//! snapshot, which is the usual duplicate. The rest goes into an insert that changes nothing where the key is there. A
//! look by the ids, again without locks, says which of them were written. Only for keys that others committed after the
//! snapshot there is a locking look, which sees them; for our own rows it would lock the gap beside each, where other
//! producers want to write. Nothing of this aborts the caller's transaction; two producers that wait for each other's
//! keys do, because MySQL rolls all of one of them back, and that is [`EnqueueError::Conflict`].
//!
//! A producer's session may be of any kind. Text goes as bytes, which no character set of the session changes on the
//! way, and lengths were checked before, so nothing is cut off even where `sql_mode` would allow it.

#[cfg(feature = "sea-orm")]
pub(crate) mod sea_orm;
mod sqlx;

use std::collections::{BTreeSet, HashMap};

use postrider_core::message::{Enqueued, NewRow};
use uuid::Uuid;

use super::statements::EnqueueStatements;
use crate::enqueue::rounds::{Writer, insert_rows};
use crate::enqueue::{EnqueueError, Outbox};
use crate::layout::dialect::{Given, header};
use crate::sql::{Portioned, Sql};

/// How many turns there are; as in the procedure, and as many as `turns.sql` fills in.
pub(super) const TURNS: u32 = 8_192;

/// The checksum that MySQL's `crc32` computes, so that the procedure takes the same turns.
const CRC32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// A server takes statements of 16 MiB or more unless somebody set `max_allowed_packet` lower; this leaves room.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The longest delay, about seven thousand years: with it no time is later than the last one that MySQL knows.
const LONGEST_DELAY_MICROS: i64 = 7_000 * 365 * 24 * 3_600 * 1_000_000;

/// A parameter of a producer's statement.
enum Value<'a> {
    /// ASCII, which is the same in every character set of a session.
    Text(&'a str),
    Uuid(Option<Uuid>),
    Bytes(Option<&'a [u8]>),
    Owned(Option<Vec<u8>>),
    Number(Option<i64>),
}

/// A row that holds a dedupe key.
struct Holder {
    id: Uuid,
    namespace: String,
    topic: String,
    dedupe_key: Vec<u8>,
}

/// How a driver runs the producer's statements.
trait Driver: Send {
    /// Runs a statement whose answer does not matter.
    fn execute(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> impl Future<Output = Result<(), EnqueueError>> + Send;

    /// Runs `enqueue_find.sql` or `enqueue_written.sql`.
    fn find(
        &mut self,
        sql: &Sql,
        values: Vec<Value<'_>>,
    ) -> impl Future<Output = Result<Vec<Holder>, EnqueueError>> + Send;
}

async fn insert(driver: impl Driver, outbox: &Outbox, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    insert_rows(&mut Rows { driver, statements: &outbox.statements.mysql, holders: Holders::default() }, rows).await
}

type Holders = HashMap<(String, String, Vec<u8>), Uuid>;

/// Writes through a driver.
struct Rows<'a, D> {
    driver: D,
    statements: &'a EnqueueStatements,
    /// The holders that the last look found.
    holders: Holders,
}

impl<D: Driver> Rows<'_, D> {
    /// Waits until no other producer has one of the keys.
    async fn take_turns(&mut self, rows: &[&NewRow]) -> Result<(), EnqueueError> {
        let slots: BTreeSet<u32> = rows.iter().filter_map(|row| slot_of(row)).collect();
        let slots: Vec<u32> = slots.into_iter().collect();
        for (sql, portion) in self.statements.enqueue_turn.split(&slots) {
            let values = portion.iter().map(|slot| Value::Number(Some(i64::from(*slot)))).collect();
            self.driver.execute(sql, values).await?;
        }
        Ok(())
    }

    async fn look(&mut self, statement: &Portioned, rows: &[&NewRow]) -> Result<(), EnqueueError> {
        let keyed: Vec<&NewRow> = rows.iter().filter(|row| row.dedupe_key.is_some()).copied().collect();
        for (sql, portion) in statement.split(&keyed) {
            let values = portion.iter().flat_map(|row| key_of(row)).collect();
            self.note(sql, values).await?;
        }
        Ok(())
    }

    /// Notes which of our own rows hold their keys, and then who holds the others.
    async fn look_after(&mut self, rows: &[&NewRow]) -> Result<(), EnqueueError> {
        let statements = self.statements;
        let keyed: Vec<&NewRow> = rows.iter().filter(|row| row.dedupe_key.is_some()).copied().collect();
        for (sql, portion) in statements.enqueue_written.split(&keyed) {
            let values = portion.iter().map(|row| Value::Uuid(Some(row.id))).collect();
            self.note(sql, values).await?;
        }
        let lost: Vec<&NewRow> = keyed.into_iter().filter(|row| self.holder(row).is_none()).collect();
        self.look(&statements.enqueue_find_now, &lost).await
    }

    async fn note(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<(), EnqueueError> {
        for holder in self.driver.find(sql, values).await? {
            self.holders.insert((holder.namespace, holder.topic, holder.dedupe_key), holder.id);
        }
        Ok(())
    }

    async fn insert(&mut self, statement: &Portioned, rows: &[&NewRow]) -> Result<(), EnqueueError> {
        for batch in by_size(rows) {
            for (sql, portion) in statement.split(batch) {
                let values = portion.iter().flat_map(|row| columns_of(row, &self.statements.given)).collect();
                self.driver.execute(sql, values).await?;
            }
        }
        Ok(())
    }

    fn holder(&self, row: &NewRow) -> Option<Uuid> {
        let key = row.dedupe_key.as_ref()?.clone().into_bytes();
        self.holders.get(&(row.namespace.clone().into_owned(), row.topic.clone().into_owned(), key)).copied()
    }
}

impl<D: Driver> Writer for Rows<'_, D> {
    async fn write(&mut self, rows: &[&NewRow]) -> Result<Vec<Uuid>, EnqueueError> {
        let statements = self.statements;
        if rows.iter().all(|row| row.dedupe_key.is_none()) {
            self.insert(&statements.enqueue, rows).await?;
            return Ok(rows.iter().map(|row| row.id).collect());
        }
        self.holders.clear();
        self.take_turns(rows).await?;
        self.look(&statements.enqueue_find, rows).await?;
        let free: Vec<&NewRow> = rows.iter().filter(|row| self.holder(row).is_none()).copied().collect();
        self.insert(&statements.enqueue_keyed, &free).await?;
        self.look_after(&free).await?;
        let is_ours = |row: &&&NewRow| row.dedupe_key.is_none() || self.holder(row) == Some(row.id);
        Ok(free.iter().filter(is_ours).map(|row| row.id).collect())
    }

    /// The look after the write has found them already.
    async fn find(&mut self, rows: &[&NewRow]) -> Result<Vec<(usize, Uuid)>, EnqueueError> {
        Ok(rows.iter().enumerate().filter_map(|(at, row)| Some((at, self.holder(row)?))).collect())
    }
}

/// Splits rows so that no statement becomes too long, unless a single row is.
fn by_size<'a, 'b>(mut rows: &'a [&'b NewRow]) -> impl Iterator<Item = &'a [&'b NewRow]> {
    std::iter::from_fn(move || {
        let mut size = 0;
        let fits = rows.iter().take_while(|row| {
            size += size_of(row);
            size <= MOST_BYTES
        });
        let count = fits.count().max(1).min(rows.len());
        let (batch, rest) = rows.split_at(count);
        rows = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn size_of(row: &NewRow) -> usize {
    let keys = row.key.as_ref().map_or(0, String::len) + row.dedupe_key.as_ref().map_or(0, String::len);
    let bytes = row.payload_bytes.as_ref().map_or(0, Vec::len);
    row.payload.len() + bytes + row.headers.len() + keys + row.namespace.len() + row.topic.len() + 200
}

/// A row of `enqueue.sql`: what the table has columns for, in their order.
fn columns_of<'a>(row: &'a NewRow, given: &[Given]) -> Vec<Value<'a>> {
    let value = |given: &Given| match given {
        Given::Id => Value::Uuid(Some(row.id)),
        Given::Namespace => Value::Text(&row.namespace),
        Given::Topic => Value::Text(&row.topic),
        Given::Key => Value::Bytes(row.key.as_deref().map(str::as_bytes)),
        Given::Tenant => Value::Uuid(row.tenant_id),
        Given::DedupeKeyOrId if row.dedupe_key.is_none() => Value::Uuid(Some(row.id)),
        Given::DedupeKey | Given::DedupeKeyOrId => Value::Bytes(row.dedupe_key.as_deref().map(str::as_bytes)),
        Given::Payload => Value::Bytes(Some(row.payload.as_bytes())),
        Given::PayloadBytes => Value::Bytes(row.payload_bytes.as_deref()),
        Given::PayloadAsBytes => Value::Bytes(Some(row.payload_bytes.as_deref().unwrap_or(row.payload.as_bytes()))),
        Given::Headers => Value::Bytes(Some(row.headers.as_bytes())),
        Given::Header(name) => Value::Owned(header(row, name).map(String::into_bytes)),
        Given::DeliverAt => Value::Number(row.deliver_at_micros),
        Given::Delay => Value::Number(row.delay_micros.map(|delay| delay.min(LONGEST_DELAY_MICROS))),
        Given::MaxAttempts => Value::Number(row.max_attempts.map(i64::from)),
        // The server knows the time.
        Given::CreatedAt | Given::UpdatedAt => Value::Number(None),
        #[cfg(feature = "sqlite")]
        Given::DueAt => Value::Number(None),
    };
    given.iter().map(value).collect()
}

/// Where the producers of a dedupe key wait for each other.
fn slot_of(row: &NewRow) -> Option<u32> {
    let mut digest = CRC32.digest();
    for part in [&*row.namespace, "\0", &*row.topic, "\0", row.dedupe_key.as_deref()?] {
        digest.update(part.as_bytes());
    }
    Some(digest.finalize() % TURNS)
}

fn key_of(row: &NewRow) -> [Value<'_>; 3] {
    let key = row.dedupe_key.as_deref().unwrap_or_default();
    [Value::Text(&row.namespace), Value::Text(&row.topic), Value::Bytes(Some(key.as_bytes()))]
}
