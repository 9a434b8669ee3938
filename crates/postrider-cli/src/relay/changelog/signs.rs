//! What a changelog route tells of itself: metrics, and signs of life for health checks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Gauge, counter, describe_counter, describe_gauge, gauge};
use postrider::Outcome;
use serde_json::{Value, json};

use crate::config::Admin;
use crate::output::span;

/// How often a route that stays held back is told of in the log.
const REMIND: Duration = Duration::from_secs(300);

/// What holds a route back that cannot read its changelog.
pub const UNREADABLE: &str = "unreadable";

/// Why a route does not get on, in one word: what the sink said is in the database and not in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBack {
    pub why: &'static str,
    pub since: Instant,
    told: Instant,
}

#[derive(Debug)]
struct State {
    /// Whether this relay has the lease; otherwise it waits for another one's.
    works: bool,
    /// When the database answered last.
    answered: Instant,
    behind: u128,
    held_back: Option<HeldBack>,
}

/// The signs of one route.
pub struct Signs {
    source: String,
    route: String,
    state: Mutex<State>,
    behind: Gauge,
    held_back: Gauge,
}

impl Signs {
    pub fn new(source: &str, route: &str) -> Self {
        describe();
        let labels = || [("source", source.to_owned()), ("route", route.to_owned())];
        Self {
            source: source.to_owned(),
            route: route.to_owned(),
            state: Mutex::new(State { works: false, answered: Instant::now(), behind: 0, held_back: None }),
            behind: gauge!("postrider_changelog_behind", &labels()),
            held_back: gauge!("postrider_changelog_held_back", &labels()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink answered for an entry.
    pub fn published(&self, outcome: &Outcome) {
        let labels = [("source", self.source.clone()), ("route", self.route.clone())];
        let [source, route] = labels;
        counter!("postrider_changelog_entries_total", &[source, route, ("outcome", outcome.kind().to_owned())])
            .increment(1);
    }

    /// The database answered.
    pub fn answered(&self) {
        self.state().answered = Instant::now();
    }

    /// How many transaction versions the route is behind.
    pub fn behind(&self, behind: u128) {
        self.state().behind = behind;
        self.behind.set(behind as f64);
    }

    /// Whether this relay has the lease; answers whether it had it before. What is known of an entry that fails is another
    /// relay's matter without it.
    pub fn works(&self, works: bool) -> bool {
        let mut state = self.state();
        if !works {
            state.held_back = None;
            self.held_back.set(0.0);
        }
        std::mem::replace(&mut state.works, works)
    }

    /// The route does not get on. Told in the log when it is new or something else, and then at a slow pace.
    pub fn held_back(&self, why: &'static str, tell: impl FnOnce(Duration)) {
        let now = Instant::now();
        let mut state = self.state();
        let last = state.held_back;
        let is_news = last.is_none_or(|last| last.why != why || last.told.elapsed() >= REMIND);
        let since = last.map_or(now, |last| last.since);
        let told = last.filter(|_| !is_news).map_or(now, |last| last.told);
        state.held_back = Some(HeldBack { why, since, told });
        self.held_back.set(1.0);
        drop(state);
        if is_news {
            tell(since.elapsed());
        }
    }

    /// The route gets on; answers for how long it did not.
    pub fn goes_on(&self) -> Option<Duration> {
        let before = self.state().held_back.take();
        self.held_back.set(0.0);
        before.map(|before| before.since.elapsed())
    }

    /// The changelog could be read; answers whether it could not before.
    pub fn readable(&self) -> bool {
        let unreadable = self.state().held_back.is_some_and(|held| held.why == UNREADABLE);
        if unreadable {
            self.goes_on();
        }
        unreadable
    }

    /// Takes back what was told, so that no alert goes on about a route that is gone.
    pub fn forget(&self) {
        self.works(false);
        self.behind(0);
    }

    /// Red when the database does not answer, or the route was held back for too long.
    pub fn health(&self, limits: &Admin) -> (bool, Value) {
        let state = self.state();
        let answered = state.answered.elapsed();
        let held_back = state.held_back.map(|held| (held.why, held.since.elapsed()));
        let why = match held_back {
            _ if answered > limits.stalled_after => Some(format!("the database answered last {} ago", span(answered))),
            Some((why, since)) if since > limits.oldest_due_limit => Some(format!(
                "the route is held back since {} ({why}); postrider changelog consumers says more",
                span(since)
            )),
            _ => None,
        };
        let body = json!({
            "route": self.route,
            "healthy": why.is_none(),
            "why": why,
            "works": state.works,
            "behind": u64::try_from(state.behind).unwrap_or(u64::MAX),
            "held_back": held_back.map(|(why, _)| why),
            "held_back_seconds": held_back.map(|(_, since)| since.as_secs_f64()),
            "answered_seconds_ago": answered.as_secs_f64(),
        });
        (why.is_none(), body)
    }
}

fn describe() {
    describe_counter!("postrider_changelog_entries_total", "Publishes of changelog entries by outcome.");
    describe_gauge!(
        "postrider_changelog_behind",
        "Transaction versions between a changelog route and the newest entry."
    );
    describe_gauge!("postrider_changelog_held_back", "1 while an entry that fails holds back a changelog route.");
}
