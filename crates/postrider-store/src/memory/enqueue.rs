//! Writing messages in a transaction that lives in memory.
//!
//! As in PostgreSQL, the first transaction that enqueues a dedupe key holds it until it ends, and another one that
//! wants the same key waits: it gets the key if the first rolls back, and is told of the row if it commits. Two
//! transactions that wait for each other are found out, and the later one is refused with
//! [`EnqueueError::Conflict`].

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use postrider_core::message::{Enqueued, NewRow};
use postrider_core::sabotage::{self, Defect};
use uuid::Uuid;

use super::store::{MemoryStore, Shared};
use super::table::{Holder, Key, StoredMessage, Table, key_of};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};

impl MemoryStore {
    /// Opens a transaction. What is enqueued in it is visible once it is committed, and gone if it is dropped.
    pub fn begin(&self) -> MemoryTransaction {
        let number = self.shared.table().next_transaction();
        let began_at = self.now_micros();
        let (rows, keys, aborted) = (Vec::new(), Vec::new(), false);
        MemoryTransaction { shared: self.shared.clone(), number, began_at, rows, keys, aborted }
    }
}

/// A transaction of a [`MemoryStore`]; dropping it rolls it back.
pub struct MemoryTransaction {
    shared: Arc<Shared>,
    number: u64,
    began_at: i64,
    rows: Vec<StoredMessage>,
    keys: Vec<Key>,
    aborted: bool,
}

impl fmt::Debug for MemoryTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransaction")
            .field("number", &self.number)
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

impl MemoryTransaction {
    /// Makes what was enqueued visible, all at once, and rings for it.
    pub fn commit(mut self) {
        let rows = std::mem::take(&mut self.rows);
        let mut namespaces: Vec<String> = rows.iter().map(|row| row.namespace.clone()).collect();
        namespaces.dedup();
        let mut table = self.shared.table();
        rows.into_iter().for_each(|row| table.commit(row));
        drop(table);
        if !namespaces.is_empty() && !sabotage::has(Defect::WakeBeforeCommit) {
            self.shared.bells.ring(Some(&namespaces));
        }
    }

    /// Forgets what was enqueued; the same as dropping the transaction.
    pub fn rollback(self) {}

    /// Forgets everything and lets others go on; as in a database, only a rollback is of use after an error.
    fn abort(&mut self) {
        self.aborted = true;
        self.rows.clear();
        self.free_keys();
    }

    /// Frees the keys that no committed row holds, and wakes whoever waits for them.
    fn free_keys(&mut self) {
        let mut table = self.shared.table();
        for key in self.keys.drain(..) {
            if table.keys.get(&key).is_some_and(|holder| holder.is(self.number)) {
                table.keys.remove(&key);
            }
        }
        drop(table);
        self.shared.ended.notify_waiters();
    }

    async fn write(&mut self, row: NewRow) -> Result<Enqueued, EnqueueError> {
        if self.aborted {
            return Err(EnqueueError::Conflict("an earlier enqueue in this transaction failed".into()));
        }
        let seq = self.shared.table().next_seq();
        let row = StoredMessage::new(row, seq, self.began_at).map_err(|error| EnqueueError::Database(error.into()))?;
        if let Some(key) = key_of(&row)
            && let Some(id) = self.take_key(key, row.id).await?
        {
            return Ok(Enqueued::Already(id));
        }
        if sabotage::has(Defect::WakeBeforeCommit) {
            self.shared.bells.ring(Some(std::slice::from_ref(&row.namespace)));
        }
        let id = row.id;
        self.rows.push(row);
        Ok(Enqueued::New(id))
    }

    /// Takes a dedupe key for a row of this transaction; answers the row that has it already, if there is one.
    async fn take_key(&mut self, key: Key, row: Uuid) -> Result<Option<Uuid>, EnqueueError> {
        let shared = self.shared.clone();
        loop {
            // Made before the look, so that a transaction which ends in between is noticed.
            let ended = pin!(shared.ended.notified());
            match try_key(&mut shared.table(), &key, self.number, row) {
                Look::Ours => {
                    self.keys.push(key);
                    return Ok(None);
                }
                Look::Taken(by) => return Ok(Some(by)),
                Look::Deadlock => {
                    return Err(EnqueueError::Conflict("two transactions wait for each other's dedupe keys".into()));
                }
                Look::Wait => {}
            }
            let _waiting = Waiting { shared: &shared, number: self.number };
            ended.await;
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        self.free_keys();
    }
}

impl CallerTransaction for &mut MemoryTransaction {
    async fn insert(self, _outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            answers.push(self.write(row).await.inspect_err(|_| self.abort())?);
        }
        Ok(answers)
    }
}

/// What a look at a dedupe key found.
enum Look {
    Ours,
    Taken(Uuid),
    Wait,
    Deadlock,
}

fn try_key(table: &mut Table, key: &Key, number: u64, row: Uuid) -> Look {
    match table.keys.get(key) {
        None => {
            table.keys.insert(key.clone(), Holder::Transaction { transaction: number, row });
            Look::Ours
        }
        Some(Holder::Row(id)) => Look::Taken(*id),
        Some(Holder::Transaction { transaction, row }) if *transaction == number => Look::Taken(*row),
        Some(Holder::Transaction { transaction, .. }) => {
            let holder = *transaction;
            if waits_for(table, holder, number) {
                return Look::Deadlock;
            }
            table.waiting.insert(number, holder);
            Look::Wait
        }
    }
}

/// Whether a transaction waits, directly or through others, for `number`. A chain has no circles, because the
/// transaction that would close one is refused.
fn waits_for(table: &Table, mut transaction: u64, number: u64) -> bool {
    while let Some(next) = table.waiting.get(&transaction) {
        if *next == number {
            return true;
        }
        transaction = *next;
    }
    false
}

/// Takes the note that a transaction waits away again, also when the enqueue is dropped half way.
struct Waiting<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.table().waiting.remove(&self.number);
    }
}
