//! What happens when the machine's clock is set back.
//!
//! All processes on a file share one clock, and it decides on leases and due times. Set back by an hour it would make
//! every lease an hour longer and put every waiting row an hour into the future. So relays note the latest time they
//! have seen in a table of one row, in the same transactions in which they write times. A relay whose transaction finds
//! its clock behind that mark repairs the rows before it does anything else, and sets the mark to the present:
//!
//! * leases lose the difference, so that they last as long as they were meant to;
//! * so do back-offs: rows that were tried or given back and wait;
//! * so do delays, which a producer asked for as a duration;
//! * rows that were due when they were written are due now;
//! * a delivery time that a producer asked for is a time of the day, and stays.
//!
//! A row says by itself which it is: one that was never tried has `updated_at` equal to `created_at`, one with a delay
//! has it a microsecond later. Rows with a delay that were written after the clock was set back stay: the mark has the
//! newest row's number too.
//!
//! The write lock makes this safe with several relays: the second finds the mark in the present. It is one transaction,
//! because a row that is moved twice would be early; with a great many waiting rows writers have to wait for it.
//!
//! Relays note the time whenever they write, and when they sweep and it is older than [`NOTED_EVERY`]. So a lease, a
//! back-off or a delay may come out longer than it was meant to be, but by no more than the time between two sweeps, which
//! is half a dispatcher's lease, and those five seconds. Without a dispatcher running nobody notes the time: then it is
//! by as much as the clock was set back and nobody ran.
//!
//! Producers do not note the time, so rows written just before the clock was set back may lie in the future although
//! the mark does not. A claim's look checks the newest row. All waiting rows are looked through when a relay starts, and
//! when its own clock goes back between two looks, measured by a clock that cannot be set.
//!
//! A clock that is set forward ends leases early. The fence by attempt makes that safe: it costs a second delivery.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{Clock, micros};

/// How far the clock may be behind the mark before rows are repaired, and how far it goes on before it is noted again,
/// in microseconds. Leases and back-offs may come out longer by this much.
pub(super) const TOLERATED: i64 = 100_000;

/// How old the mark may become while there is nothing to write, in microseconds.
const NOTED_EVERY: i64 = 5_000_000;

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

    /// Whether the time is to be noted although there is nothing to write.
    pub fn is_old(seen: i64, now: i64) -> bool {
        now.saturating_sub(seen) > NOTED_EVERY || matches!(Self::compare(seen, now), Self::Repair(_))
    }
}

/// Compares the clock with one that cannot be set, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Readings>);

#[derive(Debug, Default)]
struct Readings {
    last: Option<(Instant, i64)>,
    /// How often the clock went back, and up to which time something was done about it.
    jumps: u64,
    heeded: u64,
}

impl Pace {
    /// The number of the last jump back, if nothing was done about it yet.
    pub fn jump(&self, clock: &dyn Clock) -> Option<u64> {
        let mut readings = self.readings();
        let (at, now) = (Instant::now(), clock.now_micros());
        if let Some((then, before)) = readings.last.replace((at, now)) {
            let expected = before.saturating_add(micros(at.saturating_duration_since(then)));
            readings.jumps += u64::from(expected.saturating_sub(now) > TOLERATED);
        }
        (readings.jumps > readings.heeded).then_some(readings.jumps)
    }

    /// Something was done about this jump and those before it.
    pub fn heeded(&self, jump: u64) {
        let mut readings = self.readings();
        readings.heeded = readings.heeded.max(jump);
    }

    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
