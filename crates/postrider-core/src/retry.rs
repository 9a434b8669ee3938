//! When a failed message is tried again.

use std::sync::Arc;
use std::time::Duration;

use crate::sabotage::{self, Defect};

/// Gives numbers from 0 up to, but not including, 1. Passed in, so that tests decide chance.
pub type Randomness = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Randomness from the system.
pub fn system_randomness() -> Randomness {
    Arc::new(fastrand::f64)
}

/// Decides the delay before the next attempt.
pub trait RetryPolicy: Send + Sync {
    /// The delay after attempt number `attempts` (1 or more) failed; `random` is from 0 up to 1.
    fn delay(&self, attempts: i32, random: f64) -> Duration;
}

/// The default: `delay = min(base · 2^(attempts-1), max)`, then uniform between half of it and all of it.
/// The bound is applied before the jitter, so retries at the bound do not come all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoff {
    /// The delay after the first attempt, before jitter.
    pub base_delay: Duration,
    /// The longest delay, before jitter.
    pub max_delay: Duration,
}

impl Default for ExponentialBackoff {
    fn default() -> Self {
        Self { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(300) }
    }
}

impl RetryPolicy for ExponentialBackoff {
    fn delay(&self, attempts: i32, random: f64) -> Duration {
        let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(63);
        let factor = 1_u64 << doublings;
        let nanos = self.base_delay.as_nanos().saturating_mul(u128::from(factor));
        let bounded = nanos.min(self.max_delay.as_nanos());
        let delay = Duration::from_nanos(u64::try_from(bounded).unwrap_or(u64::MAX));
        if sabotage::has(Defect::NoJitter) {
            return delay;
        }
        delay / 2 + (delay - delay / 2).mul_f64(random.clamp(0.0, 1.0))
    }
}

/// The delay to write: never before the sink's `Retry-After`, never sooner than the policy says. What the
/// sink asked for is spread by up to a tenth, so that a thousand retries do not come at the same moment, and
/// is bounded only by `longest`, which is far above the policy's own maximum.
pub fn next_delay(policy: Duration, sink_after: Option<Duration>, random: f64, longest: Duration) -> Duration {
    let Some(after) = sink_after else { return policy };
    let longest = if sabotage::has(Defect::RetryAfterCut) { policy } else { longest };
    let after = after.min(longest);
    policy.max(after.saturating_add((after / 10).mul_f64(random.clamp(0.0, 1.0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any length of time, and often the ends.
    fn duration() -> impl Strategy<Value = Duration> {
        prop_oneof![3 => any::<Duration>(), 1 => Just(Duration::MAX), 1 => Just(Duration::ZERO)]
    }

    proptest! {
        #[test]
        fn s0_77_s0_78_delay_is_clamped_then_jittered(
            base in 1_u64..100_000, max in 1_u64..1_000_000, attempts in 1_i32..200, random in 0.0_f64..1.0,
        ) {
            let policy = ExponentialBackoff {
                base_delay: Duration::from_millis(base),
                max_delay: Duration::from_millis(max),
            };
            let full = (base as f64 * 2_f64.powi(attempts - 1)).min(max as f64) / 1_000.0;
            let delay = policy.delay(attempts, random).as_secs_f64();
            prop_assert!(delay >= full / 2.0 - 1e-6 && delay <= full + 1e-6, "{delay} outside [{}, {full}]", full / 2.0);
            prop_assert!((delay - (full / 2.0 + random * full / 2.0)).abs() < 1e-3 + full * 1e-6);
        }

        #[test]
        fn s0_77_no_number_of_attempts_and_no_length_of_time_is_too_much(
            base in duration(), max in duration(), attempts in any::<i32>(), random in -1.0_f64..2.0,
        ) {
            let policy = ExponentialBackoff { base_delay: base, max_delay: max };
            let (least, most) = (policy.delay(attempts, 0.0), policy.delay(attempts, 1.0));
            let delay = policy.delay(attempts, random);
            prop_assert!(least <= delay && delay <= most, "{delay:?} outside [{least:?}, {most:?}]");
            prop_assert!(most <= max && least * 2 <= most + Duration::from_nanos(1));
            prop_assert!(policy.delay(attempts.saturating_add(1), random) >= delay, "a later retry comes sooner");
        }

        #[test]
        fn retry_after_is_between_what_was_asked_for_and_a_tenth_more(
            policy in duration(), after in duration(), random in 0.0_f64..1.0, longest in duration(),
        ) {
            let delay = next_delay(policy, Some(after), random, longest);
            let asked = after.min(longest);
            prop_assert!(delay >= policy && delay >= asked);
            prop_assert!(delay <= policy.max(asked.saturating_add(asked / 10)));
        }

        #[test]
        fn retry_after_is_never_shortened(after in 0_u64..1_000_000, random in 0.0_f64..1.0) {
            let after = Duration::from_millis(after);
            let delay = next_delay(Duration::from_secs(1), Some(after), random, Duration::from_secs(3_600));
            prop_assert!(delay >= after.min(Duration::from_secs(3_600)) && delay >= Duration::from_secs(1));
        }
    }

    #[test]
    fn the_formula_of_seed_0_by_hand() {
        let policy = ExponentialBackoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(300) };
        assert_eq!(policy.delay(1, 0.0), Duration::from_millis(500));
        assert_eq!(policy.delay(1, 1.0), Duration::from_secs(1));
        assert_eq!(policy.delay(4, 0.5), Duration::from_secs(6));
        assert_eq!(policy.delay(10, 1.0), Duration::from_secs(300));
        assert_eq!(policy.delay(i32::MAX, 0.0), Duration::from_secs(150));
    }

    #[test]
    fn without_retry_after_the_policy_decides() {
        let second = Duration::from_secs(1);
        assert_eq!(next_delay(second, None, 0.7, second), second);
    }
}
