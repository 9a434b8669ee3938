//! What a claim answers, the same for every database.

use postrider_core::lease::{Lease, RowAddress};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use postrider_core::sabotage::{self, Defect};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use postrider_core::store::Order;
use postrider_core::store::{ClaimedMessage, Headers, Payload, StoreError};
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

/// The columns of a claimed row. Times are microseconds since 1970.
#[derive(Debug)]
pub(crate) struct ClaimedRow {
    pub id: Uuid,
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub payload: Payload,
    pub headers: Headers,
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
    message.headers = row.headers;
    message.max_attempts = row.max_attempts;
    message.created_at_micros = row.created_at;
    message.age = between(row.created_at, claimed_at);
    message
}

/// Why a claimed row is no message.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// What it holds: it is given up, and the others of its claim are delivered.
    Row(String),
    /// The answer is not what the statement says, for any row.
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for Flaw {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

/// A claimed row that is no message: what it is found by again, and what to write to it.
#[derive(Debug)]
pub(crate) struct Unreadable<R> {
    pub row: R,
    pub error: String,
}

/// Reads the rows of a claim, those apart that are no messages. What was never written has something to stand for it: an empty text, no headers,
/// the time of the claim. What is there and cannot be read is not guessed at: to fail would strand the whole claim, and to deliver it without would
/// lose a part of it without a word.
pub(crate) fn read_all<'r, Row, R>(
    rows: &'r [Row],
    read: impl Fn(&'r Row) -> Result<ClaimedRow, Flaw>,
    find: impl Fn(&'r Row) -> Result<R, sqlx::Error>,
) -> Result<(Vec<ClaimedRow>, Vec<Unreadable<R>>), sqlx::Error> {
    let (mut readable, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match read(row) {
            Ok(row) => readable.push(row),
            Err(Flaw::Failed(error)) => return Err(error),
            Err(Flaw::Row(why)) => {
                tracing::error!(%why, "a row of the outbox cannot be read, and is given up");
                let error = format!("the row cannot be read: {why}; mend it and replay it, or discard it");
                unreadable.push(Unreadable { row: find(row)?, error });
            }
        }
    }
    Ok((readable, unreadable))
}

/// Says that rows which cannot be read could not be given up either. Their leases end, and they are met again.
pub(crate) fn not_given_up(error: &StoreError) {
    tracing::error!(%error, "rows that cannot be read could not be given up; they are tried again");
}

/// A text; one that was never written is empty.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn text(what: &str, bytes: Option<Vec<u8>>) -> Result<String, Flaw> {
    String::from_utf8(bytes.unwrap_or_default()).map_err(|_| Flaw::Row(format!("its {what} is no text (UTF-8)")))
}

/// A text that stays readable whatever its bytes are.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A tenant.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn tenant(bytes: Option<Vec<u8>>) -> Result<Option<Uuid>, Flaw> {
    let Some(bytes) = bytes else { return Ok(None) };
    let text = lossy(bytes);
    match plain_uuid(&text) {
        Some(tenant) => Ok(Some(tenant)),
        None => Err(Flaw::Row(format!("its tenant {text:?} is no UUID"))),
    }
}

/// A UUID as rows have it: with hyphens or without, and with nothing around it.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn plain_uuid(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|_| matches!(text.len(), 32 | 36))
}

/// Headers are an object of strings; what a plain insert wrote otherwise in it is passed on as its JSON text.
pub(crate) fn headers(text: Option<&str>) -> Result<Headers, Flaw> {
    let Some(text) = text.filter(|text| *text != "{}") else { return Ok(Headers::default()) };
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| Flaw::Row("its headers are no JSON object".to_owned()))?;
    let as_text = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(values.into_iter().map(|(name, value)| (name, as_text(value))).collect())
}
