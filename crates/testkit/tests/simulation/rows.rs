//! I6: every change of a row, looked at as it happens. It must be an edge of the state machine by the verb that was sent,
//! behind its fence, and on the database's clock.

use std::collections::BTreeMap;

use postrider::memory::StoredMessage;
use postrider::state::{Event, transition};
use postrider::store::SUSPECT_AFTER;
use postrider::{Lease, State};
use uuid::Uuid;

/// What of a row is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: Uuid,
    pub status: State,
    pub attempts: i32,
    pub allowed: i32,
    pub locked_by: Option<Uuid>,
    pub locked_until: Option<i64>,
    pub due_at: i64,
    pub has_dedupe_key: bool,
}

impl Row {
    pub fn of(row: &StoredMessage, max_attempts: i32) -> Self {
        Self {
            id: row.id,
            status: row.status,
            attempts: row.attempts,
            allowed: row.max_attempts.unwrap_or(max_attempts),
            locked_by: row.locked_by,
            locked_until: row.locked_until_micros,
            due_at: row.next_attempt_at_micros,
            has_dedupe_key: row.dedupe_key.is_some(),
        }
    }

    /// The row for the story: without its id, which is another one every time.
    pub fn tell(&self) -> String {
        let Self { status, attempts, allowed, .. } = self;
        let holder = self.locked_by.map(|worker| format!(" of relay {}", worker.as_u128())).unwrap_or_default();
        format!("{status:?} with attempt {attempts} of {allowed}{holder}")
    }

    pub fn is_open(&self) -> bool {
        matches!(self.status, State::Pending | State::Processing)
    }

    pub fn is_expired(&self, now: i64) -> bool {
        self.status == State::Processing && self.locked_until.is_some_and(|until| until < now)
    }

    /// Whether it is claimed alone once its lease is over.
    pub fn is_suspect(&self) -> bool {
        self.attempts >= SUSPECT_AFTER.min(self.allowed - 1)
    }

    fn is_due(&self, now: i64) -> bool {
        self.status == State::Pending && self.due_at <= now
    }

    fn is_held_by(&self, lease: &Lease) -> bool {
        let holder = (self.locked_by, self.attempts) == (Some(lease.worker), lease.attempt);
        self.id == lease.id && self.status == State::Processing && holder
    }
}

/// Rows by `seq`.
pub type Rows = BTreeMap<i64, Row>;

/// What was done to the table.
#[derive(Debug, Clone)]
pub enum Verb {
    Commit,
    Claim { worker: Uuid },
    Extend(Vec<Lease>),
    Ack { leases: Vec<Lease>, deletes: bool },
    Nack(Vec<Lease>),
    Bury(Vec<Lease>),
    Release(Vec<Lease>),
    Sweep,
    Purge,
}

impl Verb {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Commit => "a commit",
            Self::Claim { .. } => "a claim",
            Self::Extend(_) => "an extend",
            Self::Ack { .. } => "an ack",
            Self::Nack(_) => "a nack",
            Self::Bury(_) => "a bury",
            Self::Release(_) => "a release",
            Self::Sweep => "a sweep",
            Self::Purge => "a purge",
        }
    }

    fn leases(&self) -> &[Lease] {
        match self {
            Self::Extend(leases) | Self::Nack(leases) | Self::Bury(leases) | Self::Release(leases) => leases,
            Self::Ack { leases, .. } => leases,
            Self::Commit | Self::Claim { .. } | Self::Sweep | Self::Purge => &[],
        }
    }

    /// The event of the state machine, and by how much it changes the attempts.
    fn event(&self) -> Option<(Event, i32)> {
        Some(match self {
            Self::Claim { .. } => (Event::Claim, 1),
            Self::Ack { .. } => (Event::Ack, 0),
            Self::Nack(_) => (Event::Nack, 0),
            Self::Bury(_) => (Event::Bury, 0),
            Self::Release(_) => (Event::Release, -1),
            Self::Sweep => (Event::Sweep, 0),
            Self::Commit | Self::Extend(_) | Self::Purge => return None,
        })
    }
}

/// Says what is wrong with a change of one row by a verb at a time of the database.
pub fn problem(verb: &Verb, was: Option<&Row>, is: Option<&Row>, now: i64) -> Option<&'static str> {
    match (was, is) {
        (None, Some(_)) => (!matches!(verb, Verb::Commit)).then_some("a row came from nowhere"),
        (Some(was), None) => of_deletion(verb, was),
        (Some(was), Some(is)) if was.id != is.id => Some("a row became another one"),
        (Some(was), Some(is)) => of_change(verb, was, is, now),
        (None, None) => None,
    }
}

fn of_deletion(verb: &Verb, was: &Row) -> Option<&'static str> {
    match verb {
        Verb::Purge => was.is_open().then_some("a row that waits or runs was purged"),
        Verb::Ack { leases, deletes: true } if !was.has_dedupe_key => {
            (!leases.iter().any(|lease| was.is_held_by(lease))).then_some("an ack passed the fence")
        }
        _ => Some("a row was deleted"),
    }
}

fn of_change(verb: &Verb, was: &Row, is: &Row, now: i64) -> Option<&'static str> {
    let fenced = verb.leases().iter().any(|lease| was.is_held_by(lease));
    let Some((event, spent)) = verb.event() else {
        let renewed = Row { locked_until: is.locked_until, ..was.clone() };
        return (!matches!(verb, Verb::Extend(_)) || !fenced || *is != renewed).then_some("a row was changed");
    };
    if transition(was.status, event) != Some(is.status) || is.attempts - was.attempts != spent {
        return Some("that is no edge of the state machine");
    }
    match verb {
        Verb::Claim { .. } if !was.is_due(now) && !was.is_expired(now) => Some("it was not to be claimed"),
        Verb::Claim { .. } if is.attempts > is.allowed => Some("I8: it has more attempts than allowed"),
        Verb::Claim { worker } if is.locked_by != Some(*worker) => Some("somebody else holds it"),
        Verb::Sweep if !was.is_due(now) && !was.is_expired(now) => Some("it was not to be swept"),
        Verb::Sweep if was.attempts < was.allowed => Some("I8: it is dead with attempts left"),
        Verb::Claim { .. } | Verb::Sweep => None,
        _ => (!fenced).then_some("it passed the fence"),
    }
}
