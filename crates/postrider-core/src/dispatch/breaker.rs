//! The breaker: while a sink is down, nothing is claimed and no message's attempts are spent.
//!
//! ```text
//!             N messages failed, none worked          pause over and sink ready
//!   closed ───────────────────────────────► open ───────────────────────────► trial
//!     ▲                                      ▲                                  │
//!     │                                      └───── the one message failed ─────┤
//!     └──────────────────────────────────────────── it worked ──────────────────┘
//! ```
//!
//! What fails while the breaker is not closed is given back with its attempt, so an outage of any length costs
//! the backlog nothing. Failures are counted by message: one poisoned message that fails ten times is one.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

/// When to stop claiming because the sink is down, and how often to try it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// So many different messages must fail, with no success in between, before the breaker opens.
    pub failures: u32,
    /// How long the sink is left alone at first.
    pub first_pause: Duration,
    /// The pause doubles with each failed trial, up to this.
    pub longest_pause: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failures: 10, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(30) }
    }
}

/// What the claiming side may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Claim as usual.
    Open,
    /// Leave the sink alone until then.
    ShutUntil(Instant),
    /// Ask the sink whether it is ready, and if so try one message.
    Trial,
}

#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    failed: HashSet<Uuid>,
    open: Option<Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Breaker {
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, failed: HashSet::new(), open: None }
    }

    /// Whether the sink counts as down.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn gate(&self, now: Instant) -> Gate {
        match self.open {
            None => Gate::Open,
            Some(pause) if now < pause.until => Gate::ShutUntil(pause.until),
            Some(_) => Gate::Trial,
        }
    }

    /// The sink answered sensibly. Says whether the breaker closed by that.
    pub fn worked(&mut self) -> bool {
        self.failed.clear();
        self.open.take().is_some()
    }

    /// A message failed, and so might any other. Says whether the breaker opened by that.
    pub fn failed(&mut self, id: Uuid, now: Instant) -> bool {
        if self.open.is_some() {
            self.trial_failed(now);
            return false;
        }
        self.failed.insert(id);
        if self.failed.len() < self.config.failures as usize {
            return false;
        }
        self.failed.clear();
        self.open = Some(Pause { until: now + self.config.first_pause, length: self.config.first_pause });
        true
    }

    /// The sink is still down: pause for twice as long. What fails during a pause was under way before it began.
    pub fn trial_failed(&mut self, now: Instant) {
        if let Some(pause) = self.open.filter(|pause| now >= pause.until) {
            let length = (pause.length * 2).min(self.config.longest_pause);
            self.open = Some(Pause { until: now + length, length });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BreakerConfig =
        BreakerConfig { failures: 3, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(3) };

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(CONFIG);
        assert!(!breaker.failed(Uuid::from_u128(1), now));
        assert!(!breaker.failed(Uuid::from_u128(2), now));
        assert!(breaker.failed(Uuid::from_u128(3), now));
        breaker
    }

    #[test]
    fn one_message_that_fails_often_does_not_open_it() {
        let mut breaker = Breaker::new(CONFIG);
        for _ in 0..100 {
            assert!(!breaker.failed(Uuid::from_u128(1), Instant::now()));
        }
        assert_eq!(breaker.gate(Instant::now()), Gate::Open);
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let now = Instant::now();
        let mut breaker = Breaker::new(CONFIG);
        breaker.failed(Uuid::from_u128(1), now);
        breaker.failed(Uuid::from_u128(2), now);
        breaker.worked();
        assert!(!breaker.failed(Uuid::from_u128(3), now));
        assert!(!breaker.is_open());
    }

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_a_success_closes() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for seconds in [1, 2, 3, 3] {
            let until = now + Duration::from_secs(seconds);
            assert_eq!(breaker.gate(now), Gate::ShutUntil(until));
            now = until;
            assert_eq!(breaker.gate(now), Gate::Trial);
            assert!(!breaker.failed(Uuid::from_u128(9), now));
        }
        assert!(breaker.worked());
        assert_eq!(breaker.gate(now), Gate::Open);
    }

    #[test]
    fn failures_of_what_was_under_way_do_not_lengthen_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.failed(Uuid::from_u128(4), now);
        assert_eq!(breaker.gate(now), Gate::ShutUntil(now + Duration::from_secs(1)));
    }
}
