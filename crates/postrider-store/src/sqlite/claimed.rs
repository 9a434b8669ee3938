//! Reading claimed rows.

use postrider_core::store::{ClaimRequest, ClaimedMessage, LARGEST_CLAIM, Lane, Payload};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::types::{address, bytes, key, read_id, with_turn};
use crate::claimed::{
    ClaimedRow, Flaw, Unreadable, column, headers, lossy, messages_by_number, plain_uuid, read_all, tenant, text,
};
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

/// The column that only SQLite answers, after those that all do.
const TURN: usize = column::SEQ + 1;

/// The messages of a claim, and the numbers and attempts of its rows that are none.
type Answer = (Vec<ClaimedMessage>, Vec<Unreadable<(i64, i64)>>);

/// Reads the rows of a claim.
pub(super) fn claimed(rows: &[SqliteRow], worker: Uuid, claimed_at: i64, turns: bool) -> Result<Answer, sqlx::Error> {
    let find = |row: &SqliteRow| Ok((row.try_get(column::SEQ)?, row.try_get(column::ATTEMPTS)?));
    let (rows, unreadable) = read_all(rows, |row| read(row, claimed_at, turns), find)?;
    Ok((messages_by_number(rows, worker, claimed_at), unreadable))
}

/// Reads a row. In a table of others a column may hold a value of any type, whatever the table says.
fn read(row: &SqliteRow, claimed_at: i64, turns: bool) -> Result<ClaimedRow, Flaw> {
    let seq = row.try_get(column::SEQ)?;
    let id = bytes(row, column::ID)?.map(lossy);
    let Some(uuid) = id.as_deref().and_then(plain_uuid) else {
        return Err(Flaw::Row(format!("its id {} is no UUID", id.map_or("null".to_owned(), |id| format!("{id:?}")))));
    };
    Ok(ClaimedRow {
        id: uuid,
        namespace: text("namespace", bytes(row, column::NAMESPACE)?)?,
        topic: text("topic", bytes(row, column::TOPIC)?)?,
        key: key(row, column::KEY)?,
        tenant_id: tenant(bytes(row, column::TENANT)?)?,
        dedupe_key: key(row, column::DEDUPE_KEY)?,
        payload: match bytes(row, column::PAYLOAD_BYTES)? {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Json(text("payload", bytes(row, column::PAYLOAD)?)?),
        },
        headers: headers(bytes(row, column::HEADERS)?.map(lossy).as_deref())?,
        attempts: row.try_get(column::ATTEMPTS)?,
        max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
        // What is no time says as much as what was never written.
        created_at: row.try_get::<Option<i64>, _>(column::CREATED_AT).ok().flatten().unwrap_or(claimed_at),
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
