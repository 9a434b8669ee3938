//! Reading claimed rows.

use postrider_core::store::{ClaimRequest, ClaimedMessage, LARGEST_CLAIM, Lane, Payload};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::types::{address, read_id, with_turn};
use crate::claimed::{ClaimedRow, column, messages_by_number};
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

/// The column that only SQLite answers, after those that all do.
const TURN: usize = column::SEQ + 1;

/// The messages of a claim.
pub(super) fn claimed(
    rows: &[SqliteRow],
    worker: Uuid,
    claimed_at: i64,
    turns: bool,
) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
    let rows = rows.iter().map(|row| read(row, turns)).collect::<Result<_, _>>()?;
    Ok(messages_by_number(rows, worker, claimed_at))
}

fn read(row: &SqliteRow, turns: bool) -> Result<ClaimedRow, sqlx::Error> {
    let seq = row.try_get(column::SEQ)?;
    Ok(ClaimedRow {
        id: read_id(row, column::ID)?,
        namespace: row.try_get(column::NAMESPACE)?,
        topic: row.try_get(column::TOPIC)?,
        key: row.try_get(column::KEY)?,
        tenant_id: row.try_get::<Option<Hyphenated>, _>(column::TENANT)?.map(Hyphenated::into_uuid),
        dedupe_key: row.try_get(column::DEDUPE_KEY)?,
        payload: match row.try_get(column::PAYLOAD_BYTES)? {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Json(row.try_get(column::PAYLOAD)?),
        },
        headers: row.try_get(column::HEADERS)?,
        attempts: row.try_get(column::ATTEMPTS)?,
        max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
        created_at: row.try_get(column::CREATED_AT)?,
        seq,
        address: if turns { with_turn(seq, row.try_get(TURN)?) } else { address(seq) },
    })
}

/// What a fair claim takes, and where the next one goes on.
pub(super) struct FairPick {
    pub numbers: Vec<i64>,
    pub last_lane: Option<Lane>,
}

/// Cuts what `claim_fair.sql` found down to the request's number and size; the first row always stays. The next claim
/// goes on after the last lane that got something if this one was cut short, so that no lane loses its turn, and begins
/// anew if it went round.
pub(super) fn pick_fair(rows: &[SqliteRow], request: &ClaimRequest) -> Result<FairPick, sqlx::Error> {
    let limit = request.limit.min(LARGEST_CLAIM) as usize;
    let (mut numbers, mut size, mut last, mut was_cut) = (Vec::new(), 0_u64, None, false);
    for row in rows {
        let Some(seq) = row.try_get::<Option<i64>, _>(4)? else { continue };
        if numbers.len() == limit || size >= request.max_bytes.max(1) {
            was_cut = true;
            break;
        }
        size = size.saturating_add(u64::try_from(row.try_get::<i64, _>(5)?).unwrap_or_default());
        numbers.push(seq);
        last = Some(row);
    }
    if !was_cut {
        let count = |at: usize| rows.last().map(|row| row.try_get::<i64, _>(at)).transpose();
        let went_round = count(0)? < Some(LANES_PER_CLAIM as i64) && count(6)? < Some(LANES_LOOKED_AT as i64);
        last = rows.last().filter(|_| !went_round);
    }
    Ok(FairPick { numbers, last_lane: last.map(lane).transpose()? })
}

fn lane(row: &SqliteRow) -> Result<Lane, sqlx::Error> {
    Ok(Lane { namespace: row.try_get(1)?, topic: row.try_get(2)?, tenant: read_id(row, 3)? })
}
