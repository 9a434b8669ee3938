//! Reading claimed rows.

use postrider_core::lease::Lease;
use postrider_core::store::{ClaimedMessage, Lane, Order, Payload};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::types::{Micros, address};
use crate::claimed::{ClaimedRow, Flaw, Unreadable, column, headers, messages, read_all};

/// The columns that only PostgreSQL answers, after those that all do.
const ADDRESS: usize = column::SEQ + 1;
const CLAIMED_AT: usize = ADDRESS + 1;
/// Namespace, topic and tenant of the last lane; fair claims only.
const LANE: usize = CLAIMED_AT + 1;

/// The messages of a claim, and its rows that are none.
type Answer = (Vec<ClaimedMessage>, Vec<Unreadable<Lease>>);

/// Reads the rows of a claim.
pub(super) fn claimed(rows: &[PgRow], worker: Uuid, waits: Order) -> Result<Answer, sqlx::Error> {
    let Some(first) = rows.first() else { return Ok(Answer::default()) };
    // A fair claim that found nothing due answers with a row all the same, for the lane.
    let Some(claimed_at) = first.try_get::<Option<Micros>, _>(CLAIMED_AT)? else { return Ok(Answer::default()) };
    let (rows, unreadable) = read_all(rows, read, |row| lease(row, worker))?;
    Ok((messages(rows, worker, claimed_at.0, waits), unreadable))
}

/// A row's lease. Ids are readable in every row: the column's type sees to it.
fn lease(row: &PgRow, worker: Uuid) -> Result<Lease, sqlx::Error> {
    Ok(Lease {
        id: row.try_get_unchecked(column::ID)?,
        worker,
        attempt: row.try_get_unchecked(column::ATTEMPTS)?,
        address: address(row.try_get_unchecked(ADDRESS)?),
    })
}

/// Reads a row. The statement itself says the types of its columns, so they are not compared once more for every value of every row.
fn read(row: &PgRow) -> Result<ClaimedRow, Flaw> {
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
        headers: headers(row.try_get_unchecked(column::HEADERS)?)?,
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
