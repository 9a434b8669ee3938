//! The one source of chance of a run. Clones draw from the same numbers, so a run is decided by its seed and by the order
//! in which things happen, which is decided by the seed too.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(Clone)]
pub struct Chance(Arc<Mutex<fastrand::Rng>>);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    pub fn number(&self, range: RangeInclusive<u64>) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(range)
    }

    pub fn size(&self, range: RangeInclusive<u64>) -> usize {
        usize::try_from(self.number(range)).unwrap_or(usize::MAX)
    }

    /// From 0 up to 1.
    pub fn fraction(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }

    /// True so many times in a thousand.
    pub fn happens(&self, per_mille: u64) -> bool {
        self.number(0..=999) < per_mille
    }

    pub fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// Between none and all of a duration, in whole milliseconds.
    pub fn part_of(&self, whole: Duration) -> Duration {
        self.millis(0..=u64::try_from(whole.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn pick<T: Copy>(&self, among: &[T]) -> T {
        among[self.size(0..=among.len() as u64 - 1)]
    }
}
