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
//! The failures that open the breaker cost one attempt each. What fails while it is not closed is given back with its
//! attempt, so an outage of any length costs the backlog nothing more. Failures are counted by message: one poisoned
//! message that fails ten times is one. A message that cannot even be sent counts neither way.
//!
//! The dispatcher has one for its sink. A sink with several destinations has a [`Turnstile`] for each instead, answers
//! [`Outcome::Busy`] while that is shut, and says so with
//! [`Sink::minds_outages`](crate::Sink::minds_outages): the dispatcher's breaker stays out of it then, because the
//! backlog of one destination must not stop the others.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::outcome::Outcome;
use crate::turns::Turns;

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

/// What may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Go on as usual.
    Open,
    /// Leave the destination alone until then.
    ShutUntil(Instant),
    /// Ask the destination whether it is ready, and if so try one message.
    Trial,
}

/// Whether a destination counts as down. See the module.
#[derive(Debug)]
pub struct Breaker {
    config: BreakerConfig,
    failed: HashSet<Uuid>,
    open: Option<Pause>,
    /// Trials that came to nothing, because the sink had no room for that message.
    void_trials: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Breaker {
    /// A closed one.
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, failed: HashSet::new(), open: None, void_trials: 0 }
    }

    /// Whether the destination counts as down.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// What may be done now.
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
        self.void_trials = 0;
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

    /// The sink had no room for a message and sent nothing. In a trial the next message may go elsewhere and fare
    /// better; when so many of them came to nothing, the trial has failed.
    pub fn had_no_room(&mut self, now: Instant) {
        if matches!(self.gate(now), Gate::Trial) {
            self.void_trials += 1;
            if self.void_trials >= self.config.failures {
                self.void_trials = 0;
                self.trial_failed(now);
            }
        }
    }

    /// The sink is still down: pause for twice as long. What fails during a pause was under way before it began.
    pub fn trial_failed(&mut self, now: Instant) {
        if let Some(pause) = self.open.filter(|pause| now >= pause.until) {
            let length = (pause.length * 2).min(self.config.longest_pause);
            self.open = Some(Pause { until: now + length, length });
        }
    }
}

/// A breaker for one of the destinations behind a sink. While it is not closed one message at a time goes through as
/// a trial, and the others are answered [`Outcome::Busy`], so that an outage of one destination neither holds up the
/// others nor costs its own backlog any attempts but those of the failures that shut it. What is not let through comes
/// back in [turns](crate::turns), not all at once.
#[derive(Debug)]
pub struct Turnstile {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    trying: bool,
    turns: Turns,
}

/// The shortest and the longest time after which a message that was not let through comes again.
const TURNS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// From one of them to the next: a hundred per second are no load for the database.
const STEP: Duration = Duration::from_millis(10);

impl State {
    /// What to say of a message that is not let through, or comes back from a destination that is known to be down.
    fn busy(&mut self, at_least: Duration, why: String) -> Outcome {
        let now = Instant::now();
        let pause = match self.breaker.gate(now) {
            Gate::ShutUntil(then) => then - now,
            Gate::Open | Gate::Trial => Duration::ZERO,
        };
        let turn = self.turns.next(now, STEP, pause, fastrand::f64());
        Outcome::Busy { after: turn.max(at_least), why }
    }
}

impl Turnstile {
    /// An open way, until failures shut it.
    pub fn new(config: BreakerConfig) -> Self {
        let turns = Turns::new(TURNS.0, TURNS.1);
        Self { state: Mutex::new(State { breaker: Breaker::new(config), trying: false, turns }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the destination counts as down.
    pub fn is_shut(&self) -> bool {
        self.lock().breaker.is_open()
    }

    /// Lets a message through, or answers what to say of it instead.
    pub fn enter(&self, id: Uuid) -> Result<Pass<'_>, Outcome> {
        let mut state = self.lock();
        let trial = match state.breaker.gate(Instant::now()) {
            Gate::Open => false,
            Gate::Trial if !state.trying => true,
            Gate::Trial | Gate::ShutUntil(_) => return Err(state.busy(Duration::ZERO, LEFT_ALONE.into())),
        };
        state.trying |= trial;
        drop(state);
        Ok(Pass { turnstile: self, id, trial, left: false })
    }

    /// What to say of a message that does not even try to get through. Each one gets a turn of its own.
    pub fn refuse(&self) -> Outcome {
        self.lock().busy(Duration::ZERO, LEFT_ALONE.into())
    }
}

const LEFT_ALONE: &str = "the destination is down and left alone for a while";

/// Leave to publish one message. If it is dropped before an outcome was given, the publish was cut off and counts as
/// failed.
#[derive(Debug)]
pub struct Pass<'a> {
    turnstile: &'a Turnstile,
    id: Uuid,
    trial: bool,
    left: bool,
}

impl Pass<'_> {
    /// Notes how the publish ended. What fails when the destination was known to be down becomes [`Outcome::Busy`],
    /// because it costs no attempt: a trial, and what was under way when the others failed.
    pub fn leave(mut self, outcome: Outcome) -> Outcome {
        self.left = true;
        let mut state = self.turnstile.lock();
        let was_down = state.breaker.is_open();
        match &outcome {
            Outcome::Accepted | Outcome::Duplicate | Outcome::Reject(_) => {
                if state.breaker.worked() {
                    state.turns.clear();
                }
            }
            Outcome::Retry { .. } | Outcome::Unknown(_) => {
                state.breaker.failed(self.id, Instant::now());
            }
            Outcome::Busy { .. } | Outcome::Unsendable(_) => {}
        }
        match outcome {
            Outcome::Retry { after, why } if was_down => state.busy(after.unwrap_or_default(), why),
            Outcome::Unknown(why) if was_down => state.busy(Duration::ZERO, why),
            outcome => outcome,
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.turnstile.lock();
        if !self.left {
            state.breaker.failed(self.id, Instant::now());
        }
        state.trying &= !self.trial;
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
    fn trials_that_come_to_nothing_fail_together() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let then = now + Duration::from_secs(1);
        for _ in 0..2 {
            breaker.had_no_room(then);
            assert_eq!(breaker.gate(then), Gate::Trial);
        }
        breaker.had_no_room(then);
        assert_eq!(breaker.gate(then), Gate::ShutUntil(then + Duration::from_secs(2)));
    }

    #[test]
    fn failures_of_what_was_under_way_do_not_lengthen_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.failed(Uuid::from_u128(4), now);
        assert_eq!(breaker.gate(now), Gate::ShutUntil(now + Duration::from_secs(1)));
    }

    /// Whether a message shall come again after about so many seconds.
    fn about(outcome: &Outcome, seconds: u64) -> bool {
        let wait = Duration::from_secs(seconds);
        matches!(outcome, Outcome::Busy { after, .. }
            if (wait.mul_f64(0.75)..=wait.mul_f64(1.25) + 2 * STEP).contains(after))
    }

    fn shut() -> Turnstile {
        let turnstile = Turnstile::new(CONFIG);
        for id in 1..=3 {
            let _counts = turnstile.enter(Uuid::from_u128(id)).expect("open").leave(Outcome::retry("no"));
        }
        assert!(turnstile.is_shut());
        turnstile
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_let_through_comes_back_in_turns() {
        let turnstile = shut();
        let wait = |turnstile: &Turnstile| match turnstile.enter(Uuid::now_v7()).expect_err("shut") {
            Outcome::Busy { after, .. } => after,
            other => panic!("{other:?}"),
        };
        let mut waits: Vec<Duration> = (0..10_000).map(|_| wait(&turnstile)).collect();
        waits.sort();
        let (least, most) = (waits[0], waits[9_999]);
        assert!(least >= Duration::from_millis(750) && least < Duration::from_secs(2), "{least:?}");
        assert!(most - least >= Duration::from_secs(60) && most <= Duration::from_secs(130), "{most:?}");
        let busiest = waits.windows(250).map(|some| some[249] - some[0]).min().expect("many");
        assert!(busiest > Duration::from_millis(500), "250 came back within {busiest:?}");

        let longest = (0..100_000).map(|_| wait(&turnstile)).max().expect("many");
        assert!(longest <= Duration::from_secs(375), "{longest:?}");

        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(turnstile.enter(Uuid::now_v7()).expect("the trial").leave(Outcome::Accepted), Outcome::Accepted);
        for _ in 0..3 {
            let _counts = turnstile.enter(Uuid::now_v7()).expect("open").leave(Outcome::retry("no"));
        }
        assert!(wait(&turnstile) < Duration::from_secs(2), "the next outage begins with an empty queue");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_sent_says_nothing_of_the_destination() {
        let turnstile = Turnstile::new(CONFIG);
        let unsendable = Outcome::Unsendable("no key".into());
        for id in 1..=3 {
            let _counts = turnstile.enter(Uuid::from_u128(id)).expect("open").leave(Outcome::retry("no"));
            let pass = turnstile.enter(Uuid::from_u128(id + 10));
            if let Ok(pass) = pass {
                assert_eq!(pass.leave(unsendable.clone()), unsendable);
            }
        }
        assert!(turnstile.is_shut(), "the failures are still counted");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(turnstile.enter(Uuid::from_u128(20)).expect("the trial").leave(unsendable.clone()), unsendable);
        assert!(turnstile.is_shut(), "it does not close");
        assert!(turnstile.enter(Uuid::from_u128(21)).is_ok(), "the next one is the trial");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_when_it_shut_costs_no_attempt() {
        let turnstile = Turnstile::new(CONFIG);
        let passes: Vec<_> = (1..=5).map(|id| turnstile.enter(Uuid::from_u128(id)).expect("open")).collect();
        let kinds: Vec<_> = passes.into_iter().map(|pass| pass.leave(Outcome::retry("no")).kind()).collect();
        assert_eq!(kinds, ["retry", "retry", "retry", "busy", "busy"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turnstile_lets_one_trial_through_and_gives_the_others_their_attempts_back() {
        let turnstile = Turnstile::new(CONFIG);
        for id in 1..=3 {
            let pass = turnstile.enter(Uuid::from_u128(id)).expect("open");
            assert_eq!(pass.leave(Outcome::retry("no")), Outcome::retry("no"), "what opens it costs an attempt");
        }
        assert!(turnstile.is_shut());
        let refused = turnstile.enter(Uuid::from_u128(4)).expect_err("shut");
        assert!(about(&refused, 1), "{refused:?}");

        tokio::time::advance(Duration::from_secs(1)).await;
        let trial = turnstile.enter(Uuid::from_u128(5)).expect("the trial");
        assert!(matches!(turnstile.enter(Uuid::from_u128(6)), Err(Outcome::Busy { .. })), "one at a time");
        let failed = trial.leave(Outcome::retry("still no"));
        assert!(about(&failed, 2), "{failed:?}");

        tokio::time::advance(Duration::from_secs(2)).await;
        let trial = turnstile.enter(Uuid::from_u128(8)).expect("another trial");
        let failed = trial.leave(Outcome::Unknown("no answer".into()));
        assert!(about(&failed, 3), "nor does one that hangs cost an attempt: {failed:?}");

        tokio::time::advance(Duration::from_secs(3)).await;
        let trial = turnstile.enter(Uuid::from_u128(7)).expect("the next trial");
        assert_eq!(trial.leave(Outcome::Accepted), Outcome::Accepted);
        assert!(!turnstile.is_shut());
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_that_is_cut_off_counts_as_failed() {
        let turnstile = Turnstile::new(CONFIG);
        for id in 1..=3 {
            drop(turnstile.enter(Uuid::from_u128(id)).expect("open"));
        }
        assert!(turnstile.is_shut());
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(turnstile.enter(Uuid::from_u128(4)).expect("the trial"));
        assert!(turnstile.enter(Uuid::from_u128(5)).is_err(), "the pause is longer now");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(turnstile.enter(Uuid::from_u128(5)).is_ok(), "the trial that was cut off bars nobody");
    }
}
