//! Signs of life of a dispatcher, for health checks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::Stats;

/// Where a dispatcher notes its signs of life; anybody may look. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pulse {
    beats: Arc<Mutex<Beats>>,
}

#[derive(Debug)]
struct Beats {
    turned: Instant,
    looked: Instant,
    settled: Instant,
    breaker_open: bool,
    stats: Option<(Stats, Instant)>,
}

/// Signs of life at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signs {
    /// How long ago its loop last went round, whether with success or not, or a publish ended; or since it was built. If
    /// this is long it is stuck.
    pub turned: Duration,
    /// How long ago the database last answered it; or since it was built.
    pub looked: Duration,
    /// How long ago it last settled a message; or since it was built.
    pub settled: Duration,
    /// Whether it leaves its sink alone because that is down.
    pub breaker_open: bool,
    /// What waits, and how long ago that was counted.
    pub stats: Option<(Stats, Duration)>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            beats: Arc::new(Mutex::new(Beats {
                turned: now,
                looked: now,
                settled: now,
                breaker_open: false,
                stats: None,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signs of life now.
    pub fn signs(&self) -> Signs {
        let beats = self.lock();
        Signs {
            turned: beats.turned.elapsed(),
            looked: beats.looked.elapsed(),
            settled: beats.settled.elapsed(),
            breaker_open: beats.breaker_open,
            stats: beats.stats.map(|(stats, counted)| (stats, counted.elapsed())),
        }
    }

    pub(super) fn turned(&self) {
        self.lock().turned = Instant::now();
    }

    pub(super) fn looked(&self) {
        self.lock().looked = Instant::now();
    }

    pub(super) fn settled(&self) {
        self.lock().settled = Instant::now();
    }

    pub(super) fn breaker(&self, open: bool) {
        self.lock().breaker_open = open;
    }

    pub(super) fn counted(&self, stats: Stats) {
        self.lock().stats = Some((stats, Instant::now()));
    }
}
