//! The life of a row, drawn once.
//!
//! ```text
//!              claim                     ack
//!   pending ───────────► processing ───────────► delivered
//!    ▲  ▲ ▲                │ │ │ │ ▲
//!    │  │ └── nack ────────┘ │ │ └─┘ claim, once the lease ran out
//!    │  └──── release ───────┘ │
//!    │                         │ bury, or sweep once the lease ran out
//!    │         replay          ▼
//!    └──────────────────────  dead ◄── sweep of a pending row whose attempts are spent
//! ```
//!
//! `delivered` is never left. `dead` is left by an operator's replay only.

/// Where a row is in its life; the words of the `status` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting for its time to be claimed.
    Pending,
    /// Claimed under a lease.
    Processing,
    /// Accepted by its sink.
    Delivered,
    /// Given up: attempts spent, or refused for good.
    Dead,
}

impl State {
    /// Every state, in the order of a row's life.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Delivered, Self::Dead];

    /// The word in the `status` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The state for a word of the `status` column.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What can happen to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the store's verbs
pub enum Event {
    Claim,
    Ack,
    Nack,
    Bury,
    Release,
    Sweep,
    Replay,
}

/// The state after an event, or `None` if the event must leave the row alone.
pub fn transition(from: State, event: Event) -> Option<State> {
    use {Event as E, State as S};
    match (from, event) {
        (S::Pending | S::Processing, E::Claim) => Some(S::Processing),
        (S::Processing, E::Ack) => Some(S::Delivered),
        (S::Processing, E::Nack | E::Release) => Some(S::Pending),
        (S::Processing, E::Bury) => Some(S::Dead),
        (S::Pending | S::Processing, E::Sweep) => Some(S::Dead),
        (S::Dead, E::Replay) => Some(S::Pending),
        _ => None,
    }
}

/// What follows a failed attempt: another one while attempts are left, else the row is buried.
pub fn after_failure(attempts: i32, max_attempts: i32) -> Event {
    if attempts >= max_attempts { Event::Bury } else { Event::Nack }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [Event; 7] =
        [Event::Claim, Event::Ack, Event::Nack, Event::Bury, Event::Release, Event::Sweep, Event::Replay];

    #[test]
    fn s0_85_delivered_is_never_left() {
        assert!(EVENTS.iter().all(|event| transition(State::Delivered, *event).is_none()));
    }

    #[test]
    fn s0_86_dead_is_left_by_replay_only() {
        for event in EVENTS {
            assert_eq!(transition(State::Dead, event).is_some(), event == Event::Replay);
        }
    }

    #[test]
    fn s0_83_a_pending_row_is_not_settled() {
        for event in [Event::Ack, Event::Nack, Event::Bury, Event::Release] {
            assert_eq!(transition(State::Pending, event), None);
        }
    }

    #[test]
    fn s0_58_s0_81_three_attempts_mean_three_deliveries() {
        assert_eq!(after_failure(1, 3), Event::Nack);
        assert_eq!(after_failure(2, 3), Event::Nack);
        assert_eq!(after_failure(3, 3), Event::Bury);
        assert_eq!(after_failure(4, 3), Event::Bury);
    }

    #[test]
    fn words_parse_back() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
        assert_eq!(State::parse("sent"), None);
    }

    proptest! {
        /// Whatever is asked of a row, in whatever order: its attempts are counted as `transition` says what happened.
        #[test]
        fn i6_i8_any_walk_keeps_to_the_picture_and_spends_no_more_attempts_than_allowed(
            events in prop::collection::vec(prop::sample::select(EVENTS.to_vec()), 0..200), max_attempts in 1_i32..6,
        ) {
            let (mut state, mut attempts, mut died) = (State::Pending, 0, false);
            for asked in events {
                // A worker that failed buries the row when its attempts are spent; a claim of a spent row is the sweep's.
                let event = match asked {
                    Event::Nack => after_failure(attempts, max_attempts),
                    Event::Claim if attempts >= max_attempts => Event::Sweep,
                    // Only what is spent is swept.
                    Event::Sweep if attempts < max_attempts => continue,
                    other => other,
                };
                let Some(next) = transition(state, event) else { continue };
                prop_assert!(state != State::Delivered, "{event:?} leaves delivered");
                prop_assert!(state != State::Dead || event == Event::Replay, "{event:?} leaves dead");
                prop_assert!(state == State::Processing || !matches!(next, State::Delivered), "delivered without a claim");
                attempts = match event {
                    Event::Claim => attempts + 1,
                    Event::Release => attempts - 1,
                    Event::Replay => 0,
                    _ => attempts,
                };
                died |= next == State::Dead;
                state = next;
                prop_assert!((0..=max_attempts).contains(&attempts), "{attempts} attempts after {event:?}");
                prop_assert!(state != State::Processing || attempts > 0, "claimed without an attempt");
            }
            prop_assert!(state != State::Dead || died);
        }

        #[test]
        fn any_other_word_is_no_state(word in ".*") {
            prop_assert_eq!(State::parse(&word).map(State::as_str), State::ALL.map(State::as_str).into_iter().find(|known| *known == word));
        }
    }
}
