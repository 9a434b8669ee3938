//! What happens when the machine's clock is set back.
//!
//! All processes on a file share one clock, and it decides on leases and due times. Set back by an hour it would make
//! every lease an hour longer and put every waiting row an hour into the future. So relays note the latest time they
//! have seen in a table of one row, in the same transactions in which they write times. A relay whose transaction finds
//! its clock behind that mark repairs the rows before it does anything else, and sets the mark to the present:
//!
//! * leases lose the difference, so that they last as long as they were meant to;
//! * so do back-offs: rows that were tried or given back and wait;
//! * rows that were due when they were written are due now;
//! * a delivery time that a producer asked for is a time of the day, and stays.
//!
//! The write lock makes this safe with several relays: the second finds the mark in the present. Producers do not note
//! the time, so rows written just before the clock was set back may lie in the future although the mark does not. Those
//! are looked for once when a relay starts, and a claim's look always checks the newest row.
//!
//! A clock that is set forward ends leases early. The fence by attempt makes that safe: it costs a second delivery.

use std::time::Duration;

use crate::clock::micros;

/// How far the clock may be behind the mark before rows are repaired, and how far it goes on before it is noted again,
/// in microseconds. Leases and back-offs may come out longer by this much.
pub(super) const TOLERATED: i64 = 100_000;

/// What a relay's transaction has to do about the clock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The mark is of the present.
    Recent,
    /// Time has passed; note it.
    Advance,
    /// The clock was set back by this many microseconds.
    Repair(i64),
}

impl Mark {
    /// Compares the latest time that was seen with the present.
    pub fn compare(seen: i64, now: i64) -> Self {
        match seen.saturating_sub(now) {
            behind if behind > TOLERATED => Self::Repair(behind),
            behind if behind < -TOLERATED => Self::Advance,
            _ => Self::Recent,
        }
    }
}

/// Says that the clock was set back.
pub(super) fn warn(behind: i64) {
    let behind = Duration::from_micros(behind.unsigned_abs());
    tracing::warn!(?behind, "the clock was set back; leases and waiting rows are moved back with it");
}

/// The latest time that is not in the future.
pub(super) fn not_after(now: i64) -> i64 {
    now.saturating_add(TOLERATED)
}

/// A time this long ago.
pub(super) fn ago(now: i64, duration: Duration) -> i64 {
    now.saturating_sub(micros(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_steps_are_tolerated_and_large_ones_are_not() {
        assert_eq!(Mark::compare(1_000_000, 1_000_000), Mark::Recent);
        assert_eq!(Mark::compare(1_100_000, 1_000_000), Mark::Recent);
        assert_eq!(Mark::compare(1_100_001, 1_000_000), Mark::Repair(100_001));
        assert_eq!(Mark::compare(0, 1_000_000), Mark::Advance);
        assert_eq!(Mark::compare(900_000, 1_000_000), Mark::Recent);
    }
}
