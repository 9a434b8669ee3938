//! What time it is for a store whose database has no clock of its own, and durations as the stores write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The clock that decides leases and due times.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 1970.
    fn now_micros(&self) -> i64;
}

/// The system's clock, which somebody may set back.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        since_1970(SystemTime::now())
    }
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

    /// Sets the clock back.
    pub fn set_back(&self, duration: Duration) {
        self.0.fetch_sub(micros(duration), Ordering::SeqCst);
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

/// A century: longer delays and leases mean nothing, and would overflow a time on the server.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A duration in microseconds, as the stores write it.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

/// The time from `earlier` to `later`; zero if it is the other way round.
pub(crate) fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_micros(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}
