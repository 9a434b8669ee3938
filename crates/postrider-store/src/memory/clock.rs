//! What time it is for a store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The clock that decides leases and due times.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 1970.
    fn now_micros(&self) -> i64;
}

/// Begins at the system's time and then follows tokio's, which a test can pause and advance.
#[derive(Debug, Clone)]
pub struct TokioClock {
    start: Instant,
    start_micros: i64,
}

impl Default for TokioClock {
    fn default() -> Self {
        Self { start: Instant::now(), start_micros: since_1970(SystemTime::now()) }
    }
}

impl Clock for TokioClock {
    fn now_micros(&self) -> i64 {
        self.start_micros.saturating_add(micros(self.start.elapsed()))
    }
}

/// Stands still until it is told to go on. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl Default for ManualClock {
    fn default() -> Self {
        Self::starting_at(SystemTime::now())
    }
}

impl ManualClock {
    /// A clock that stands at the given time.
    pub fn starting_at(time: SystemTime) -> Self {
        Self(Arc::new(AtomicI64::new(since_1970(time))))
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.0.fetch_add(micros(duration), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn since_1970(time: SystemTime) -> i64 {
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The time from `earlier` to `later`; zero if it is the other way round.
pub(super) fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_micros(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}
