//! The invariants I1 to I8, as one pure function of the evidence.
//!
//! They hold of a database at rest: nobody produces, nobody relays, and every message is delivered or dead.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider::State;
use postrider::state::{Event, transition};
use uuid::Uuid;

use super::evidence::{Arrival, Change, Entry, Evidence, Row};
use super::{Bounds, Report};

const EXAMPLES: usize = 3;

/// What is broken, one line for each kind of breach, with examples.
pub fn judge(evidence: &Evidence, bounds: &Bounds) -> Vec<String> {
    let known = Known::new(evidence);
    let duplicates = known.duplicates();
    let mut broken = Vec::new();
    broken.extend(agreement(&known, bounds));
    broken.extend(lost(&known));
    broken.extend(invented(&known));
    if duplicates > bounds.duplicates {
        broken.push(format!("I4: {duplicates} duplicates, at most {} may be", bounds.duplicates));
    }
    broken.extend(disorder(&known));
    broken.extend(edges(evidence));
    broken.extend(leases(evidence));
    broken.extend(settled(&known));
    broken.extend(forgotten(evidence, bounds));
    broken.extend(attempts(&known, bounds));
    broken
}

/// What the evidence counts up to.
pub fn report(evidence: &Evidence) -> Report {
    let count = |matches: &dyn Fn(&&Change) -> bool| evidence.changes.iter().filter(matches).count() as i64;
    let is_reclaim = |change: &&Change| change.was == State::Processing && change.is_claim();
    let lag = |change: &Change| change.decided_at - change.locked_until_was.unwrap_or(change.decided_at);
    let lags = evidence.changes.iter().filter(is_reclaim).map(lag);
    Report {
        messages: evidence.rows.len() as i64,
        dead: evidence.rows.iter().filter(|row| row.state == State::Dead).count() as i64,
        duplicates: Known::new(evidence).duplicates(),
        reclaims: count(&is_reclaim),
        slowest_reclaim: Duration::from_micros(lags.max().unwrap_or(0).max(0) as u64),
    }
}

/// The evidence by message.
struct Known<'a> {
    evidence: &'a Evidence,
    ledger: HashMap<Uuid, &'a Entry>,
    rows: HashMap<Uuid, &'a Row>,
    /// The first arrival of each.
    arrived: HashMap<Uuid, &'a Arrival>,
}

impl<'a> Known<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut arrived = HashMap::new();
        for arrival in &evidence.arrivals {
            arrived.entry(arrival.id).or_insert(arrival);
        }
        Self {
            evidence,
            ledger: evidence.ledger.iter().map(|entry| (entry.id, entry)).collect(),
            rows: evidence.rows.iter().map(|row| (row.id, row)).collect(),
            arrived,
        }
    }

    fn duplicates(&self) -> i64 {
        (self.evidence.arrivals.len() - self.arrived.len()) as i64
    }
}

fn breach<T>(what: &str, found: Vec<T>, tell: impl Fn(&T) -> String) -> Option<String> {
    let examples = found.iter().take(EXAMPLES).map(tell).collect::<Vec<_>>().join(", ");
    let (id, text) = what.split_once(' ')?;
    (!found.is_empty()).then(|| format!("{id} {} {text}, such as {examples}", found.len()))
}

fn agreement(known: &Known<'_>, bounds: &Bounds) -> Vec<String> {
    let without_row = known.ledger.keys().filter(|id| !known.rows.contains_key(*id));
    let without_entry = known.rows.keys().filter(|id| !known.ledger.contains_key(*id));
    let apart = without_row.chain(without_entry).collect();
    let told = bounds.told.iter().filter(|id| !known.rows.contains_key(*id)).collect();
    let id = |id: &&Uuid| id.to_string();
    [
        breach("I1: in the ledger and not in the outbox, or the other way round", apart, id),
        breach("I1: told to be committed, and not in the outbox", told, id),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn lost(known: &Known<'_>) -> Option<String> {
    let is_safe = |row: &Row| match row.state {
        State::Dead => true,
        State::Delivered => known.arrived.contains_key(&row.id),
        State::Pending | State::Processing => false,
    };
    let lost = known.evidence.rows.iter().filter(|row| !is_safe(row)).collect();
    breach("I2: neither dead nor delivered, or not at the destination: lost", lost, |row| {
        format!("{} {}", row.id, row.state.as_str())
    })
}

fn invented(known: &Known<'_>) -> Option<String> {
    let fits = |arrival: &Arrival| {
        let row = known.rows.get(&arrival.id).and_then(|row| row.contents);
        let entry = known.ledger.get(&arrival.id).and_then(|entry| entry.contents);
        row.or(entry) == Some(arrival.contents)
    };
    let strange = known.evidence.arrivals.iter().filter(|arrival| !fits(arrival)).collect();
    breach("I3: arrived, but no message is committed that has these contents", strange, |arrival| {
        arrival.id.to_string()
    })
}

/// First arrivals only: a repeat may come at any time.
fn disorder(known: &Known<'_>) -> Option<String> {
    let mut latest: HashMap<&str, i64> = HashMap::new();
    let mut seen = HashSet::new();
    let mut late = Vec::new();
    for arrival in known.evidence.arrivals.iter().filter(|arrival| seen.insert(arrival.id)) {
        let Some(entry) = known.ledger.get(&arrival.id) else { continue };
        let Some(lane) = &entry.lane else { continue };
        match latest.get(lane.as_str()) {
            Some(place) if *place >= entry.place => late.push((entry, *place)),
            _ => drop(latest.insert(lane, entry.place)),
        }
    }
    breach("I5: overtaken by a later message of their key", late, |(entry, place)| {
        format!("{} ({} after {place} in {})", entry.id, entry.place, entry.lane.as_deref().unwrap_or_default())
    })
}

/// The state machine decides which kinds of change may be.
fn edges(evidence: &Evidence) -> Vec<String> {
    let mut kinds: HashMap<_, Uuid> = HashMap::new();
    for change in &evidence.changes {
        kinds.entry((change.was, change.became, change.spent())).or_insert(change.id);
    }
    let illegal = kinds.into_iter().filter(|((was, became, spent), _)| !is_edge(*was, *became, *spent));
    let tell = |((was, became, spent), id): ((State, Option<State>, i32), Uuid)| {
        let became = became.map_or("deleted", State::as_str);
        format!("I6: {} became {became} with {spent:+} attempts, such as {id}", was.as_str())
    };
    illegal.map(tell).collect()
}

/// Whether the state machine has such an edge that changes attempts by so many.
fn is_edge(was: State, became: Option<State>, spent: i32) -> bool {
    let events = [Event::Claim, Event::Ack, Event::Nack, Event::Bury, Event::Release, Event::Sweep, Event::Replay];
    let fits = |event: Event| match event {
        Event::Claim => spent == 1,
        Event::Release => spent == -1,
        Event::Replay => spent <= 0,
        Event::Ack | Event::Nack | Event::Bury | Event::Sweep => spent == 0,
    };
    became.is_some_and(|became| events.into_iter().any(|event| fits(event) && transition(was, event) == Some(became)))
}

/// Who claims tells by it whose account its worker uses; nobody else settles for that worker.
fn leases(evidence: &Evidence) -> Vec<String> {
    let claims = evidence.changes.iter().filter(|change| change.is_claim());
    let makers: HashMap<Uuid, &str> =
        claims.clone().filter_map(|change| Some((change.locked_by?, change.made_by.as_str()))).collect();
    let is_over = |change: &Change| change.locked_until_was.is_some_and(|end| end < change.decided_at + evidence.grain);
    let jumped = claims.filter(|change| change.was == State::Processing && !is_over(change)).collect();
    let is_settle = |change: &&Change| change.was == State::Processing && change.became != Some(State::Processing);
    let is_sweep = |change: &Change| change.became == Some(State::Dead) && is_over(change);
    let is_holder = |change: &Change| {
        let holder = change.locked_by_was.and_then(|worker| makers.get(&worker));
        holder.is_some_and(|maker| *maker == change.made_by)
    };
    let settles = evidence.changes.iter().filter(is_settle).filter(|change| change.became.is_some());
    let stolen = settles.filter(|change| !is_holder(change) && !is_sweep(change)).collect();
    let tell = |change: &&Change| {
        let became = change.became.map_or("deleted", State::as_str);
        format!("{} attempt {} became {became} by {}", change.id, change.attempts, change.made_by)
    };
    [
        breach("I6: claimed while another lease was still good", jumped, tell),
        breach("I6: settled by a worker that did not hold the lease", stolen, tell),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A destination that drops repeats has the message by an earlier attempt, and says so to the one that repeats it.
fn settled(known: &Known<'_>) -> Option<String> {
    let Evidence { arrivals, changes, grain, drops_repeats, .. } = known.evidence;
    let mut arrived: HashMap<Uuid, Vec<&Arrival>> = HashMap::new();
    for arrival in arrivals {
        arrived.entry(arrival.id).or_default().push(arrival);
    }
    let brought = |arrival: &Arrival, change: &Change| {
        arrival.at <= change.at + grain
            && (arrival.attempt == change.attempts || *drops_repeats && arrival.attempt < change.attempts)
    };
    let is_early = |change: &&Change| {
        let mut there = arrived.get(&change.id).into_iter().flatten();
        change.became == Some(State::Delivered) && !there.any(|arrival| brought(arrival, change))
    };
    let early = changes.iter().filter(is_early).collect();
    breach("I6: delivered by an attempt that had not arrived", early, |change| {
        format!("{} attempt {}", change.id, change.attempts)
    })
}

fn forgotten(evidence: &Evidence, bounds: &Bounds) -> Option<String> {
    let overdue = i64::try_from(bounds.overdue.as_micros()).unwrap_or(i64::MAX);
    let is_forgotten = |row: &&Row| row.state == State::Processing && row.overdue_micros > overdue;
    let forgotten = evidence.rows.iter().filter(is_forgotten).collect();
    breach("I7: under a lease that ended long ago", forgotten, |row| row.id.to_string())
}

fn attempts(known: &Known<'_>, bounds: &Bounds) -> Option<String> {
    let is_wrong = |row: &&Row| {
        let allowed = row.max_attempts.unwrap_or(bounds.max_attempts);
        let is_doomed = known.ledger.get(&row.id).is_some_and(|entry| entry.is_doomed);
        match row.state {
            _ if row.attempts > allowed => true,
            State::Dead => row.attempts < allowed && !is_doomed,
            State::Pending => row.attempts >= allowed,
            State::Delivered => is_doomed,
            State::Processing => false,
        }
    };
    let wrong = known.evidence.rows.iter().filter(is_wrong).collect();
    let what = "I8: more attempts than allowed, or dead with attempts left, or waiting with none";
    breach(what, wrong, |row| format!("{} {} after {}", row.id, row.state.as_str(), row.attempts))
}

#[cfg(test)]
mod tests;
