//! What a claim answers, the same for every database.

use postrider_core::lease::{Lease, RowAddress};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use postrider_core::sabotage::{self, Defect};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use postrider_core::store::Order;
use postrider_core::store::{ClaimedMessage, Headers, Payload};
use uuid::Uuid;

use crate::clock::between;

/// Where the columns of a claim are where they come from `returning`, as in the fragment `{claimed}`; by position, because
/// names are looked up anew for each row.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod column {
    pub const ID: usize = 0;
    pub const NAMESPACE: usize = 1;
    pub const TOPIC: usize = 2;
    pub const KEY: usize = 3;
    pub const TENANT: usize = 4;
    pub const DEDUPE_KEY: usize = 5;
    pub const PAYLOAD: usize = 6;
    pub const PAYLOAD_BYTES: usize = 7;
    pub const HEADERS: usize = 8;
    pub const ATTEMPTS: usize = 9;
    pub const MAX_ATTEMPTS: usize = 10;
    pub const CREATED_AT: usize = 11;
    pub const SEQ: usize = 12;
}

/// The columns of a claimed row, as the database answered them. Times are microseconds since 1970.
#[derive(Debug)]
pub(crate) struct ClaimedRow {
    pub id: Uuid,
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub payload: Payload,
    /// JSON text; nothing if there are none.
    pub headers: Option<String>,
    /// This claim included.
    pub attempts: i32,
    pub max_attempts: Option<i32>,
    pub created_at: i64,
    pub seq: i64,
    pub address: RowAddress,
}

/// The messages of a claim in the order they were enqueued, which `returning` does not keep. With order per key that is
/// the order of their numbers: a transaction may have begun before another one and have written after it.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn messages(mut rows: Vec<ClaimedRow>, worker: Uuid, claimed_at: i64, waits: Order) -> Vec<ClaimedMessage> {
    match waits {
        _ if sabotage::has(Defect::OrderByReturning) => {}
        Order::None => rows.sort_unstable_by_key(|row| (row.created_at, row.seq, row.id)),
        Order::Key => rows.sort_unstable_by_key(|row| row.seq),
    }
    in_this_order(rows, worker, claimed_at)
}

/// The messages of a claim in the order of their numbers, where there is one writer at a time and so numbers are given in
/// the order of commits. The clock of such a store may have been set back between two messages.
#[cfg(feature = "sqlite")]
pub(crate) fn messages_by_number(mut rows: Vec<ClaimedRow>, worker: Uuid, claimed_at: i64) -> Vec<ClaimedMessage> {
    rows.sort_unstable_by_key(|row| row.seq);
    in_this_order(rows, worker, claimed_at)
}

fn in_this_order(rows: Vec<ClaimedRow>, worker: Uuid, claimed_at: i64) -> Vec<ClaimedMessage> {
    rows.into_iter().map(|row| message(row, worker, claimed_at)).collect()
}

fn message(row: ClaimedRow, worker: Uuid, claimed_at: i64) -> ClaimedMessage {
    let lease = Lease { id: row.id, worker, attempt: row.attempts, address: row.address };
    let mut message = ClaimedMessage::new(lease, row.namespace, row.topic, row.payload);
    message.key = row.key;
    message.tenant_id = row.tenant_id;
    message.dedupe_key = row.dedupe_key;
    message.headers = row.headers.as_deref().map(headers).unwrap_or_default();
    message.max_attempts = row.max_attempts;
    message.created_at_micros = row.created_at;
    message.age = between(row.created_at, claimed_at);
    message
}

/// Headers are an object of strings; what a plain insert wrote otherwise is passed on as its JSON text.
pub(crate) fn headers(text: &str) -> Headers {
    let values: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let as_text = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    values.into_iter().map(|(name, value)| (name, as_text(value))).collect()
}
