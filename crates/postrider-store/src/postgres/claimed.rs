//! Reading claimed rows.

use postrider_core::store::{ClaimedMessage, Lane, Order, Payload};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::types::{Micros, address};
use crate::claimed::{ClaimedRow, column, messages};

/// The columns that only PostgreSQL answers, after those that all do.
const ADDRESS: usize = column::SEQ + 1;
const CLAIMED_AT: usize = ADDRESS + 1;
/// Namespace, topic and tenant of the last lane; fair claims only.
const LANE: usize = CLAIMED_AT + 1;

/// The messages of a claim.
pub(super) fn claimed(rows: &[PgRow], worker: Uuid, waits: Order) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    // A fair claim that found nothing due answers with a row all the same, for the lane.
    let Some(claimed_at) = first.try_get::<Option<Micros>, _>(CLAIMED_AT)? else { return Ok(Vec::new()) };
    let rows = rows.iter().map(read).collect::<Result<_, _>>()?;
    Ok(messages(rows, worker, claimed_at.0, waits))
}

/// Reads a row. The statement itself says the types of its columns, so they are not compared once more for every value of every row.
fn read(row: &PgRow) -> Result<ClaimedRow, sqlx::Error> {
    let created_at: Micros = row.try_get_unchecked(column::CREATED_AT)?;
    Ok(ClaimedRow {
        id: row.try_get_unchecked(column::ID)?,
        namespace: row.try_get_unchecked(column::NAMESPACE)?,
        topic: row.try_get_unchecked(column::TOPIC)?,
        key: row.try_get_unchecked(column::KEY)?,
        tenant_id: row.try_get_unchecked(column::TENANT)?,
        dedupe_key: row.try_get_unchecked(column::DEDUPE_KEY)?,
        payload: match row.try_get_unchecked(column::PAYLOAD_BYTES)? {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Json(row.try_get_unchecked(column::PAYLOAD)?),
        },
        headers: row.try_get_unchecked(column::HEADERS)?,
        attempts: row.try_get_unchecked(column::ATTEMPTS)?,
        max_attempts: row.try_get_unchecked(column::MAX_ATTEMPTS)?,
        created_at: created_at.0,
        seq: row.try_get_unchecked(column::SEQ)?,
        address: address(row.try_get_unchecked(ADDRESS)?),
    })
}

/// Where a fair claim stopped, unless it went round.
pub(super) fn last_lane(rows: &[PgRow]) -> Result<Option<Lane>, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(namespace) = row.try_get(LANE)? else { return Ok(None) };
    let (topic, tenant) = (row.try_get(LANE + 1)?, row.try_get(LANE + 2)?);
    Ok(Some(Lane { namespace, topic, tenant }))
}
