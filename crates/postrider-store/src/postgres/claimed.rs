//! Reading claimed rows.

use postrider_core::lease::Lease;
use postrider_core::store::{ClaimedMessage, Headers, Lane, Payload};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::types::{Micros, address};

/// Where the columns of a claim are; as in the fragment `{claimed}`, by position because names are looked up anew for
/// each row.
mod column {
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
    pub const ADDRESS: usize = 13;
    pub const CLAIMED_AT: usize = 14;
    /// Namespace, topic and tenant of the last lane; fair claims only.
    pub const LANE: usize = 15;
}

/// The messages of a claim in the order they were enqueued; `update … returning` has no order of its own.
pub(super) fn claimed(rows: &[PgRow], worker: Uuid) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        // A fair claim that found nothing due answers with a row all the same, for the lane.
        if let Some(id) = row.try_get(column::ID)? {
            messages.push(message(row, id, worker)?);
        }
    }
    messages.sort_unstable_by_key(|(order, _)| *order);
    Ok(messages.into_iter().map(|(_, message)| message).collect())
}

/// A message, and when its row was written: time, then sequence.
fn message(row: &PgRow, id: Uuid, worker: Uuid) -> Result<((i64, i64), ClaimedMessage), sqlx::Error> {
    let attempts: i32 = row.try_get(column::ATTEMPTS)?;
    let created_at: Micros = row.try_get(column::CREATED_AT)?;
    let claimed_at: Micros = row.try_get(column::CLAIMED_AT)?;
    let payload = match row.try_get(column::PAYLOAD_BYTES)? {
        Some(bytes) => Payload::Bytes(bytes),
        None => Payload::Json(row.try_get(column::PAYLOAD)?),
    };
    let lease = Lease { id, worker, attempt: attempts, address: address(row.try_get(column::ADDRESS)?) };
    let (namespace, topic) = (row.try_get(column::NAMESPACE)?, row.try_get(column::TOPIC)?);
    let mut message = ClaimedMessage::new(lease, namespace, topic, payload);
    message.key = row.try_get(column::KEY)?;
    message.tenant_id = row.try_get(column::TENANT)?;
    message.dedupe_key = row.try_get(column::DEDUPE_KEY)?;
    message.headers = headers(row.try_get(column::HEADERS)?);
    message.max_attempts = row.try_get(column::MAX_ATTEMPTS)?;
    message.created_at_micros = created_at.0;
    message.age = claimed_at.since(created_at);
    Ok(((created_at.0, row.try_get(column::SEQ)?), message))
}

/// Headers are an object of strings; what a plain insert wrote otherwise is passed on as its JSON text.
fn headers(text: Option<&str>) -> Headers {
    let Some(text) = text else { return Headers::new() };
    let values: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let as_text = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    values.into_iter().map(|(name, value)| (name, as_text(value))).collect()
}

/// Where a fair claim stopped, unless it went round.
pub(super) fn last_lane(rows: &[PgRow]) -> Result<Option<Lane>, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(namespace) = row.try_get(column::LANE)? else { return Ok(None) };
    let (topic, tenant) = (row.try_get(column::LANE + 1)?, row.try_get(column::LANE + 2)?);
    Ok(Some(Lane { namespace, topic, tenant }))
}
