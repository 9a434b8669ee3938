//! Reading claimed rows.

use postrider_core::lease::Lease;
use postrider_core::store::{ClaimedMessage, Order, Payload};
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use super::statements::Shape;
use super::types::{RowKey, bytes, key, uuid, uuid_or_null};
use crate::claimed::{ClaimedRow, Flaw, Unreadable, headers, messages, read_all, tenant, text};

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

/// The messages of a claim, and its rows that are none.
type Answer = (Vec<ClaimedMessage>, Vec<Unreadable<Taken>>);

/// A row that a claim took: what it is found by, and its lease. One that has no id has no lease that anybody could settle.
#[derive(Debug)]
pub(super) struct Taken {
    pub row: RowKey,
    pub lease: Lease,
}

/// Reads the rows of a claim, as they were before it.
pub(super) fn claimed(rows: &[MySqlRow], worker: Uuid, waits: Order, shape: Shape) -> Result<Answer, sqlx::Error> {
    let Some(first) = rows.first() else { return Ok(Answer::default()) };
    let claimed_at = first.try_get(column::CLAIMED_AT)?;
    let (rows, unreadable) = read_all(rows, |row| read(row, shape), |row| taken(row, worker, shape))?;
    Ok((messages(rows, worker, claimed_at, waits), unreadable))
}

fn taken(row: &MySqlRow, worker: Uuid, shape: Shape) -> Result<Taken, sqlx::Error> {
    let (found, attempts): (_, i32) = (RowKey::read(row, column::SEQ, shape)?, row.try_get(column::ATTEMPTS)?);
    let id = uuid_or_null(row, column::ID)?.unwrap_or_default();
    let lease = Lease { id, worker, attempt: attempts + 1, address: found.address(0) };
    Ok(Taken { row: found, lease })
}

fn read(row: &MySqlRow, shape: Shape) -> Result<ClaimedRow, Flaw> {
    let (found, attempts): (_, i32) = (RowKey::read(row, column::SEQ, shape)?, row.try_get(column::ATTEMPTS)?);
    if let RowKey::Odd(text) = &found {
        return Err(Flaw::Row(format!("its id {text:?} is no UUID")));
    }
    Ok(ClaimedRow {
        id: uuid(row, column::ID)?,
        namespace: text("namespace", bytes(row, column::NAMESPACE)?)?,
        topic: text("topic", bytes(row, column::TOPIC)?)?,
        key: key(row, column::KEY)?,
        tenant_id: tenant(bytes(row, column::TENANT)?)?,
        dedupe_key: key(row, column::DEDUPE_KEY)?,
        payload: match row.try_get(column::PAYLOAD_BYTES)? {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Json(row.try_get(column::PAYLOAD)?),
        },
        headers: headers(row.try_get(column::HEADERS)?)?,
        attempts: attempts + 1,
        max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
        created_at: row.try_get(column::CREATED_AT)?,
        // Rows without a number that were written at the same time are in the order in which the server has them: of their ids.
        seq: if let RowKey::Number(seq) = &found { *seq } else { 0 },
        address: found.address(if shape.turns { row.try_get(column::TURN)? } else { 0 }),
    })
}
