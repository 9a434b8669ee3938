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
/// How often a database that does not answer is told of in the log.
const REMIND_OF_TROUBLE: Duration = Duration::from_secs(60);

/// What holds a route back that cannot read its changelog.
pub const UNREADABLE: &str = "unreadable";

/// Why a route does not get on, in one word: what the sink said is in the database and not in logs.
#[derive(Debug)]
struct HeldBack {
    why: &'static str,
    since: Instant,
    /// What was told of it in the log, and when last.
    told: Vec<&'static str>,
    told_last: Instant,
}

#[derive(Debug)]
struct State {
    /// Whether this relay has the lease; otherwise it waits for another one's.
    works: bool,
    /// When the database answered last.
    answered: Instant,
    behind: u128,
    held_back: Option<HeldBack>,
    /// When it was told in the log that the database does not answer.
    trouble_told: Option<Instant>,
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
            state: Mutex::new(State {
                works: false,
                answered: Instant::now(),
                behind: 0,
                held_back: None,
                trouble_told: None,
            }),
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

    /// The route does not get on. Told in the log for each reason once, and then at a slow pace, however they alternate.
    pub fn held_back(&self, why: &'static str, tell: impl FnOnce(Duration)) {
        let now = Instant::now();
        let mut state = self.state();
        let new = || HeldBack { why, since: now, told: Vec::new(), told_last: now };
        let held = state.held_back.get_or_insert_with(new);
        held.why = why;
        let is_new = !held.told.contains(&why);
        let is_news = is_new || held.told_last.elapsed() >= REMIND;
        if is_new {
            held.told.push(why);
        }
        if is_news {
            held.told_last = now;
        }
        let since = held.since;
        drop(state);
        self.held_back.set(1.0);
        if is_news {
            tell(since.elapsed());
        }
    }

    /// The database does not answer; whether that is to be told in the log again.
    pub fn is_trouble_news(&self) -> bool {
        let mut state = self.state();
        let is_news = state.trouble_told.is_none_or(|told| told.elapsed() >= REMIND_OF_TROUBLE);
        if is_news {
            state.trouble_told = Some(Instant::now());
        }
        is_news
    }

    /// The route gets on; answers for how long it did not.
    pub fn goes_on(&self) -> Option<Duration> {
        let before = self.state().held_back.take();
        self.held_back.set(0.0);
        before.map(|before| before.since.elapsed())
    }

    /// The changelog could be read; answers whether it could not before.
    pub fn readable(&self) -> bool {
        let unreadable = self.state().held_back.as_ref().is_some_and(|held| held.why == UNREADABLE);
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
        let held_back = state.held_back.as_ref().map(|held| (held.why, held.since.elapsed()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_that_alternate_are_told_once_each_until_the_route_goes_on() {
        let signs = Signs::new("shop", "trail");
        let mut told = Vec::new();
        for why in ["busy", "retry", "busy", "unknown", "retry", "busy"] {
            signs.held_back(why, |_| told.push(why));
        }
        assert_eq!(told, ["busy", "retry", "unknown"]);
        assert!(signs.goes_on().is_some());
        signs.held_back("retry", |_| told.push("again"));
        assert_eq!(told.last(), Some(&"again"));
    }

    #[test]
    fn a_database_that_is_away_is_told_of_once_in_a_while() {
        let signs = Signs::new("shop", "trail");
        assert!(signs.is_trouble_news() && !signs.is_trouble_news());
    }
}
