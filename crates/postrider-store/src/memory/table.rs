//! The rows, and who holds which dedupe key.

use std::collections::{BTreeMap, HashMap};

use postrider_core::message::NewRow;
use postrider_core::operate::AuditEntry;
use postrider_core::state::State;
use postrider_core::store::{Headers, Payload, SUSPECT_AFTER};
use uuid::Uuid;

/// A row with all its columns. Times are microseconds since 1970. Payloads do not show up when it is printed.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[allow(missing_docs)] // the columns of `outbox_messages`, documented in the migration
pub struct StoredMessage {
    pub id: Uuid,
    pub seq: i64,
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub payload: Payload,
    pub headers: Headers,
    pub status: State,
    pub attempts: i32,
    pub max_attempts: Option<i32>,
    pub next_attempt_at_micros: i64,
    pub locked_by: Option<Uuid>,
    pub locked_until_micros: Option<i64>,
    pub last_error: Option<String>,
    pub created_at_micros: i64,
    pub updated_at_micros: i64,
    pub delivered_at_micros: Option<i64>,
}

impl StoredMessage {
    /// A row as it is inserted, in a transaction that began at `now`.
    pub(super) fn new(row: NewRow, seq: i64, now: i64) -> Result<Self, serde_json::Error> {
        let due_at = row.deliver_at_micros.or(row.delay_micros.map(|delay| now.saturating_add(delay)));
        Ok(Self {
            id: row.id,
            seq,
            namespace: row.namespace.into_owned(),
            topic: row.topic.into_owned(),
            key: row.key,
            tenant_id: row.tenant_id,
            dedupe_key: row.dedupe_key,
            payload: row.payload_bytes.map_or(Payload::Json(row.payload), Payload::Bytes),
            headers: serde_json::from_str(&row.headers)?,
            status: State::Pending,
            attempts: 0,
            max_attempts: row.max_attempts,
            next_attempt_at_micros: due_at.unwrap_or(now),
            locked_by: None,
            locked_until_micros: None,
            last_error: None,
            created_at_micros: now,
            updated_at_micros: now,
            delivered_at_micros: None,
        })
    }

    /// Waiting, and its time has come.
    pub(super) fn is_due(&self, now: i64) -> bool {
        self.status == State::Pending && self.next_attempt_at_micros <= now
    }

    /// Under a lease that ran out.
    pub(super) fn is_expired(&self, now: i64) -> bool {
        self.status == State::Processing && self.locked_until_micros.is_some_and(|until| until < now)
    }

    /// No attempt is left, given the dispatcher's number.
    pub(super) fn is_spent(&self, max_attempts: i32) -> bool {
        self.attempts >= self.max_attempts.unwrap_or(max_attempts)
    }

    /// Its worker died on it often enough to be claimed alone; asked of expired rows only.
    pub(super) fn is_suspect(&self, max_attempts: i32) -> bool {
        self.attempts >= SUSPECT_AFTER.min(self.max_attempts.unwrap_or(max_attempts) - 1)
    }

    /// Moves the row to a state and ends its lease.
    pub(super) fn settle(&mut self, state: State, now: i64) {
        self.status = state;
        self.locked_by = None;
        self.locked_until_micros = None;
        self.updated_at_micros = now;
    }
}

/// A dedupe key with its namespace and topic.
pub(super) type Key = (String, String, String);

/// Who holds a dedupe key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// A committed row.
    Row(Uuid),
    /// An open transaction, with the row it will commit.
    Transaction { transaction: u64, row: Uuid },
}

impl Holder {
    /// Whether it is this transaction, still open.
    pub fn is(&self, number: u64) -> bool {
        matches!(self, Self::Transaction { transaction, .. } if *transaction == number)
    }
}

/// Everything the store remembers.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Committed rows by `seq`.
    pub rows: BTreeMap<i64, StoredMessage>,
    pub keys: HashMap<Key, Holder>,
    /// Which open transaction waits for which other to end.
    pub waiting: HashMap<u64, u64>,
    /// What operators did, the oldest first.
    pub audit: Vec<AuditEntry>,
    by_id: HashMap<Uuid, i64>,
    last_seq: i64,
    last_transaction: u64,
}

impl Table {
    pub fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }

    pub fn next_transaction(&mut self) -> u64 {
        self.last_transaction += 1;
        self.last_transaction
    }

    /// Makes a row visible to everybody.
    pub fn commit(&mut self, row: StoredMessage) {
        if let Some(key) = key_of(&row) {
            self.keys.insert(key, Holder::Row(row.id));
        }
        self.by_id.insert(row.id, row.seq);
        self.rows.insert(row.seq, row);
    }

    /// Deletes a row, and its dedupe key with it.
    pub fn delete(&mut self, seq: i64) {
        let Some(row) = self.rows.remove(&seq) else { return };
        self.by_id.remove(&row.id);
        if let Some(key) = key_of(&row) {
            self.keys.remove(&key);
        }
    }

    pub fn by_id(&mut self, id: Uuid) -> Option<&mut StoredMessage> {
        self.rows.get_mut(self.by_id.get(&id)?)
    }
}

pub(super) fn key_of(row: &StoredMessage) -> Option<Key> {
    row.dedupe_key.as_ref().map(|key| (row.namespace.clone(), row.topic.clone(), key.clone()))
}
