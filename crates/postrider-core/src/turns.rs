//! Turns: when messages that were given back come again.
//!
//! They stand in an imagined queue that moves at a given pace, so that a large backlog does not come back all at once,
//! again and again, and keep the database busy for nothing.

use std::time::Duration;

use tokio::time::Instant;

/// The imagined queue. See the module.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    first: Duration,
    last: Duration,
    end: Option<Instant>,
}

impl Turns {
    /// An empty queue; turns are between `first` and `last` from now.
    pub fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, end: None }
    }

    /// Gives away the next turn, which is one `step` after the one before. Answers how long to wait for it: `at_least`
    /// so long, and a quarter more or less by `random`, which is between 0 and 1.
    pub fn next(&mut self, now: Instant, step: Duration, at_least: Duration, random: f64) -> Duration {
        let first = now + self.first;
        let end = (self.end.map_or(first, |end| end.max(first)) + step).min(now + self.last);
        self.end = Some(end);
        (end - now).max(at_least).mul_f64(0.75 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// Forgets all turns that were given away.
    pub fn clear(&mut self) {
        self.end = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_begin_with_the_first_and_end_with_the_last() {
        let (now, step) = (Instant::now(), Duration::from_secs(2));
        let mut turns = Turns::new(Duration::from_secs(1), Duration::from_secs(6));
        let mut next = |at_least, random| turns.next(now, step, Duration::from_secs(at_least), random).as_secs_f64();
        assert_eq!([next(0, 0.5), next(0, 0.5), next(0, 0.5), next(0, 0.5)], [3.0, 5.0, 6.0, 6.0]);
        assert_eq!([next(8, 0.5), next(8, 0.0), next(8, 1.0)], [8.0, 6.0, 10.0]);
        turns.clear();
        assert_eq!(turns.next(now, step, Duration::ZERO, 0.5), Duration::from_secs(3));
        // After a rest the queue is empty.
        let later = now + Duration::from_secs(60);
        assert_eq!(turns.next(later, step, Duration::ZERO, 0.5), Duration::from_secs(3));
    }
}
