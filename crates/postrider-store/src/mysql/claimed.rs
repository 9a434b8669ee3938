//! Reading claimed rows.

use postrider_core::store::{ClaimedMessage, Order, Payload};
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use super::statements::Shape;
use super::types::{RowKey, key, uuid, uuid_or_null};
use crate::claimed::{ClaimedRow, messages};

/// Where the columns of `claim_read.sql` are.
mod column {
    pub const SEQ: usize = 0;
    pub const ID: usize = 1;
    pub const NAMESPACE: usize = 2;
    pub const TOPIC: usize = 3;
    pub const KEY: usize = 4;
    pub const TENANT: usize = 5;
    pub const DEDUPE_KEY: usize = 6;
    pub const PAYLOAD: usize = 7;
    pub const PAYLOAD_BYTES: usize = 8;
    pub const HEADERS: usize = 9;
    pub const ATTEMPTS: usize = 10;
    pub const MAX_ATTEMPTS: usize = 11;
    pub const CREATED_AT: usize = 12;
    pub const CLAIMED_AT: usize = 13;
    pub const TURN: usize = 14;
}

/// The messages of a claim, from rows as they were before it.
pub(super) fn claimed(
    rows: &[MySqlRow],
    worker: Uuid,
    waits: Order,
    shape: Shape,
) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let claimed_at = first.try_get(column::CLAIMED_AT)?;
    let rows = rows.iter().map(|row| read(row, shape)).collect::<Result<_, _>>()?;
    Ok(messages(rows, worker, claimed_at, waits))
}

fn read(row: &MySqlRow, shape: Shape) -> Result<ClaimedRow, sqlx::Error> {
    let (found, attempts): (_, i32) = (RowKey::read(row, column::SEQ, shape)?, row.try_get(column::ATTEMPTS)?);
    let headers: &str = row.try_get(column::HEADERS)?;
    Ok(ClaimedRow {
        id: uuid(row, column::ID)?,
        namespace: row.try_get(column::NAMESPACE)?,
        topic: row.try_get(column::TOPIC)?,
        key: key(row, column::KEY)?,
        tenant_id: uuid_or_null(row, column::TENANT)?,
        dedupe_key: key(row, column::DEDUPE_KEY)?,
        payload: match row.try_get(column::PAYLOAD_BYTES)? {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Json(row.try_get(column::PAYLOAD)?),
        },
        headers: (headers != "{}").then(|| headers.to_owned()),
        attempts: attempts + 1,
        max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
        created_at: row.try_get(column::CREATED_AT)?,
        // Rows without a number that were written at the same time are in the order in which the server has them: of their ids.
        seq: if let RowKey::Number(seq) = found { seq } else { 0 },
        address: found.address(if shape.turns { row.try_get(column::TURN)? } else { 0 }),
    })
}
