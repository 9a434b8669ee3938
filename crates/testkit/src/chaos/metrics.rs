//! I9: what relays count, held against the tables.
//!
//! Gauges are of the tables, so at rest those of every relay must equal them. Counters are of a process and go with it: those
//! of a relay that lives at rest must equal the changes that were made with its account, if it knows all that it did: nothing came
//! between it and the database, and no statement of it failed. Otherwise the tables may have more than it counted, and
//! never less. On SQLite, which has no accounts, counters are compared only if no relay was replaced, all of them together.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use postrider::State;

use super::place::Place;
use super::relay::Fleet;
use crate::checker::evidence::Change;
use crate::within;

/// Gauges are read every fifteen seconds; a busy machine may take longer.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// What a relay counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    claimed: u64,
    /// Accepted, or known to the destination already.
    published: u64,
    retried: u64,
    released: u64,
    buried: u64,
    lease_lost: u64,
    /// Whether it knows all that it did.
    is_exact: bool,
}

/// The values of a metric in Prometheus' text format, added up over its labels where those hold a word.
fn sum(text: &str, metric: &str, word: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(metric));
    let values = lines.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(word));
    values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

impl Counters {
    /// Reads them from what `/metrics` says of a relay that nothing came between, or something did.
    pub fn read(text: &str, is_untouched: bool) -> Self {
        let published = |outcome: &str| sum(text, "postrider_published_total", &format!("outcome=\"{outcome}\""));
        Self {
            claimed: sum(text, "postrider_claimed_total", ""),
            published: published("accepted") + published("duplicate"),
            retried: sum(text, "postrider_retried_total", ""),
            released: sum(text, "postrider_released_total", ""),
            buried: sum(text, "postrider_buried_total", ""),
            lease_lost: sum(text, "postrider_lease_lost_total", ""),
            is_exact: is_untouched && sum(text, "postrider_store_errors_total", "") == 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.claimed += other.claimed;
        self.published += other.published;
        self.retried += other.retried;
        self.released += other.released;
        self.buried += other.buried;
        self.lease_lost += other.lease_lost;
        self.is_exact &= other.is_exact;
    }

    /// What the tables say was done.
    fn of(changes: &[&Change]) -> Self {
        let count = |is: &dyn Fn(&Change) -> bool| changes.iter().filter(|change| is(change)).count() as u64;
        let back = |change: &Change, spent: i32| {
            change.was == State::Processing && change.became == Some(State::Pending) && change.spent() == spent
        };
        Self {
            claimed: count(&Change::is_claim),
            published: count(&|change| change.became == Some(State::Delivered)),
            retried: count(&|change| back(change, 0)),
            released: count(&|change| back(change, -1)),
            buried: count(&|change| change.became == Some(State::Dead)),
            lease_lost: 0,
            is_exact: true,
        }
    }

    /// Where a relay's counters differ from the tables.
    fn differences(&self, tables: &Self) -> Vec<String> {
        let named = [
            ("claimed", self.claimed, tables.claimed),
            ("retried", self.retried, tables.retried),
            ("released", self.released, tables.released),
            ("buried", self.buried, tables.buried),
        ];
        let is_wrong = |counted: u64, there: u64| if self.is_exact { counted != there } else { counted > there };
        let mut wrong: Vec<_> = named.into_iter().filter(|(_, counted, there)| is_wrong(*counted, *there)).collect();
        // What was published and could not be settled is not in the tables; nothing is there that was not published.
        let least = if self.is_exact { self.published.saturating_sub(self.lease_lost) } else { 0 };
        if !(least..=self.published).contains(&tables.published) {
            wrong.push(("delivered", self.published, tables.published));
        }
        wrong.into_iter().map(|(what, counted, there)| format!("{what} {counted}, in the tables {there}")).collect()
    }
}

/// What the relays of a run say at rest: their pages, and their counters by account.
pub struct Scrape {
    /// Everything that the admin endpoints answered.
    pub pages: Vec<String>,
    counters: BTreeMap<String, Counters>,
    has_all: bool,
}

/// Waits until the gauges of every relay equal the tables, and reads the counters; says which do not.
pub async fn scrape(fleet: &Fleet, place: &Place) -> Result<(Scrape, Vec<String>)> {
    let mut broken = Vec::new();
    let (mut pages, mut counters) = (Vec::new(), BTreeMap::new());
    let count = |status: &str| format!("select count(*) from outbox_messages where status = '{status}'");
    let pending = place.source.count(&count("pending")).await?;
    let processing = place.source.count(&count("processing")).await?;
    let dead = place.source.count(&count("dead")).await?;
    let wanted = [("postrider_backlog", pending), ("postrider_processing", processing), ("postrider_dead", dead)];
    for member in &fleet.members {
        let agree = || async {
            let Ok((200, text)) = member.relay.get("/metrics").await else { return false };
            wanted.iter().all(|(gauge, there)| i64::try_from(sum(&text, gauge, "")).is_ok_and(|said| said == *there))
        };
        let agreed = within(READ_WITHIN, "gauges that agree", agree).await;
        let (_, text) = member.relay.get("/metrics").await.with_context(|| member.account.clone())?;
        if agreed.is_err() {
            let said = wanted.map(|(gauge, there)| format!("{gauge} {}, in the table {there}", sum(&text, gauge, "")));
            broken.push(format!("I9: {} says {}", member.account, said.join("; ")));
        }
        counters.insert(member.account.clone(), Counters::read(&text, member.is_untouched));
        pages.push(text);
        pages.push(member.relay.get("/healthz").await?.1);
        pages.push(member.relay.get("/readyz").await?.1);
    }
    let has_all = fleet.started() == fleet.members.len();
    Ok((Scrape { pages, counters, has_all }, broken))
}

impl Scrape {
    /// How many relays' counters must equal the tables, where the database has accounts or not.
    pub fn exact(&self, has_accounts: bool) -> usize {
        let exact = self.counters.values().filter(|counters| counters.is_exact).count();
        let is_compared = has_accounts || self.has_all && exact == self.counters.len();
        if is_compared { exact } else { 0 }
    }

    /// Where counters and changes disagree.
    pub fn judge(&self, changes: &[Change]) -> Vec<String> {
        let mut made: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
        for change in changes {
            made.entry(change.made_by.split(['/', '@']).next().unwrap_or_default()).or_default().push(change);
        }
        let tell = |who: &str, counted: &Counters, tables: &Counters| {
            let differences = counted.differences(tables);
            (!differences.is_empty()).then(|| format!("I9: {who} counted {}", differences.join("; ")))
        };
        if made.keys().any(|who| self.counters.contains_key(*who)) {
            let each = self.counters.iter().filter_map(|(who, counted)| {
                tell(who, counted, &Counters::of(made.get(who.as_str()).map_or(&[][..], Vec::as_slice)))
            });
            return each.collect();
        }
        let mut all = Counters { is_exact: true, ..Counters::default() };
        self.counters.values().for_each(|counters| all.add(counters));
        let tables = Counters::of(&changes.iter().collect::<Vec<_>>());
        self.has_all.then(|| tell("the relays together", &all, &tables)).flatten().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const PAGE: &str = "# TYPE postrider_claimed_total counter\npostrider_claimed_total{dispatcher=\"chaos\"} 2\n\
        postrider_published_total{dispatcher=\"chaos\",outcome=\"accepted\"} 1\n\
        postrider_published_total{dispatcher=\"chaos\",outcome=\"retry\"} 1\n\
        postrider_retried_total{dispatcher=\"chaos\"} 1\npostrider_dead{dispatcher=\"chaos\"} 3\n";

    fn change(was: State, became: State, made_by: &str, spent: i32) -> Change {
        Change {
            id: Uuid::nil(),
            at: 0,
            decided_at: 0,
            was,
            became: Some(became),
            attempts_were: 1,
            attempts: 1 + spent,
            locked_until_was: None,
            locked_by_was: None,
            locked_by: None,
            made_by: made_by.into(),
        }
    }

    fn changes(by: &str) -> Vec<Change> {
        vec![
            change(State::Pending, State::Processing, by, 1),
            change(State::Pending, State::Processing, by, 1),
            change(State::Processing, State::Delivered, by, 0),
            change(State::Processing, State::Pending, by, 0),
        ]
    }

    fn scraped(page: &str, is_untouched: bool, has_all: bool) -> Scrape {
        let counters = BTreeMap::from([("relay_1".to_owned(), Counters::read(page, is_untouched))]);
        Scrape { pages: Vec::new(), counters, has_all }
    }

    #[test]
    fn i9_counters_equal_the_changes_of_their_account() {
        let sound = scraped(PAGE, true, false);
        let mut all = changes("relay_1@127.0.0.1");
        all.extend(changes("relay_2@127.0.0.1"));
        assert!(sound.judge(&all).is_empty() && sound.exact(true) == 1 && sound.exact(false) == 0);
        all.push(change(State::Pending, State::Processing, "relay_1@127.0.0.1", 1));
        assert_eq!(sound.judge(&all), ["I9: relay_1 counted claimed 2, in the tables 3"]);
        assert!(scraped(PAGE, false, false).judge(&all).is_empty(), "it cannot know of all that it did");
        let few = &all[1..4];
        let found = scraped(PAGE, false, false).judge(few);
        assert_eq!(found, ["I9: relay_1 counted claimed 2, in the tables 1"], "never more than was done");
    }

    #[test]
    fn i9_nothing_is_delivered_that_was_not_published() {
        let by = "relay_1/postrider";
        let mut more = changes(by);
        more.push(change(State::Processing, State::Delivered, by, 0));
        for is_untouched in [true, false] {
            let found = scraped(PAGE, is_untouched, false).judge(&more);
            assert_eq!(found, ["I9: relay_1 counted delivered 1, in the tables 2"]);
        }
        let mut fewer = changes(by);
        fewer.remove(2);
        assert_eq!(scraped(PAGE, true, false).judge(&fewer).len(), 1);
        assert!(scraped(PAGE, false, false).judge(&fewer).is_empty(), "its ack may not have reached the database");
    }

    #[test]
    fn i9_without_accounts_all_are_added_up_if_all_are_there() {
        let changes = changes("somebody");
        assert!(scraped(PAGE, true, true).judge(&changes).is_empty());
        assert_eq!(scraped(PAGE, true, true).judge(&changes[1..]).len(), 1);
        assert!(scraped(PAGE, true, false).judge(&changes[1..]).is_empty(), "a relay that is gone did the rest");
    }

    #[test]
    fn a_failed_statement_makes_counters_inexact() {
        let failed = format!("{PAGE}postrider_store_errors_total{{verb=\"claim\"}} 1\n");
        assert_eq!(scraped(&failed, true, false).exact(true), 0);
        assert_eq!(sum(PAGE, "postrider_dead", ""), 3);
    }
}
