//! Reading claimed rows.

use postrider_core::lease::Lease;
use postrider_core::store::{ClaimedMessage, ClaimedRow, Headers, Lane, Payload};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::types::{Micros, address};

/// The messages of a claim in the order they were enqueued; `update … returning` has no order of its own.
pub(super) fn claimed(rows: &[PgRow], worker: Uuid) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        // A fair claim that found lanes but no due row answers with nothing but the last lane.
        if row.try_get::<Option<Uuid>, _>("id")?.is_some() {
            messages.push(message(row, worker)?);
        }
    }
    messages.sort_unstable_by_key(|(order, _)| *order);
    Ok(messages.into_iter().map(|(_, message)| message).collect())
}

/// A message, and when its row was written: time, then sequence.
fn message(row: &PgRow, worker: Uuid) -> Result<((i64, i64), ClaimedMessage), sqlx::Error> {
    let id: Uuid = row.try_get("id")?;
    let attempts: i32 = row.try_get("attempts")?;
    let (created_at, claimed_at): (Micros, Micros) = (row.try_get("created_at")?, row.try_get("claimed_at")?);
    let payload = match row.try_get::<Option<Vec<u8>>, _>("payload_bytes")? {
        Some(bytes) => Payload::Bytes(bytes),
        None => Payload::Json(row.try_get("payload")?),
    };
    let message = ClaimedRow {
        id,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        tenant_id: row.try_get("tenant_id")?,
        dedupe_key: row.try_get("dedupe_key")?,
        payload,
        headers: headers(row.try_get("headers")?),
        attempts,
        max_attempts: row.try_get("max_attempts")?,
        created_at_micros: created_at.0,
        age: claimed_at.since(created_at),
        lease: Lease { id, worker, attempt: attempts, address: address(row.try_get("address")?) },
    };
    Ok(((created_at.0, row.try_get("seq")?), message.into()))
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

/// Where a fair claim stopped.
pub(super) fn last_lane(rows: &[PgRow]) -> Result<Option<Lane>, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Lane {
        namespace: row.try_get("lane_namespace")?,
        topic: row.try_get("lane_topic")?,
        tenant: row.try_get("lane_tenant")?,
    }))
}
