//! What is written down of a run: what producers committed, what arrived, every claim and what disturbed it. Breaches that
//! can be told at once are told here; [`check`](super::check) looks at the rest when the run is at rest.
//!
//! A claim is *disturbed* when a fault touched it: its relay crashed, froze or got no answer from the database, the
//! database's clock jumped, or the sink did not say what happened. A message may arrive once more for each disturbed
//! claim, and for no other reason.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use postrider::memory::StoredMessage;
use postrider::{ClaimedMessage, Ended, State};
use tokio::time::Instant;
use uuid::Uuid;

use super::counts::Counts;
use super::rows::{Row, Rows, Verb, problem};

/// What a message is like for the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    Good,
    /// The sink refuses it for good.
    Rejected,
    /// It cannot even be sent.
    Unsendable,
    /// The sink never takes it, and says that it may be tried again.
    Doomed,
}

/// A message as its producer wrote it.
#[derive(Debug, Clone)]
pub struct Written {
    pub number: usize,
    pub nature: Nature,
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant: Option<Uuid>,
    pub payload: Vec<u8>,
}

/// One claim of one message.
#[derive(Debug, Clone)]
pub struct Claim {
    pub id: Uuid,
    pub worker: Uuid,
    pub attempt: i32,
    /// The end of its lease on the database's clock.
    pub until: i64,
    pub is_open: bool,
    pub disturbed: bool,
    /// Time went by without its relay: that may publish after the end of the lease.
    pub late: bool,
    pub arrivals: u32,
    /// How often it may be published, because a sink that panics is tried again.
    pub publishes: u32,
}

/// How a relay is doing.
#[derive(Default)]
struct Trouble {
    frozen: bool,
    dead: bool,
    until: Option<Instant>,
}

#[derive(Default)]
pub struct Books {
    pub names: HashMap<Uuid, usize>,
    pub ledger: BTreeMap<usize, (Uuid, Written)>,
    /// Every row that was ever there, with its last state.
    pub seen: BTreeMap<i64, Row>,
    pub rows: Rows,
    pub claims: Vec<Claim>,
    latest: HashMap<(Uuid, Uuid, i32), usize>,
    /// The messages that arrived, in their order.
    pub arrivals: Vec<Uuid>,
    pub refused: HashSet<Uuid>,
    /// How many messages fail for good.
    pub doomed: u64,
    troubles: HashMap<Uuid, Trouble>,
    pub breaches: Vec<String>,
    pub counts: Counts,
}

impl Books {
    /// How a message is called in the story.
    pub fn name(&self, id: Uuid) -> String {
        self.names.get(&id).map_or_else(|| "a stranger".into(), |number| format!("m{number}"))
    }

    pub fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }

    /// Looks at all rows after a verb.
    pub fn observe(&mut self, verb: &Verb, rows: &[StoredMessage], max_attempts: i32, now: i64) {
        self.counts.effects += 1;
        let before = std::mem::take(&mut self.rows);
        let after: Rows = rows.iter().map(|row| (row.seq, Row::of(row, max_attempts))).collect();
        let mut changed: Vec<i64> =
            before.iter().filter(|(seq, was)| after.get(seq) != Some(was)).map(|(seq, _)| *seq).collect();
        changed.extend(after.keys().filter(|seq| !before.contains_key(seq)));
        for seq in changed {
            let (was, is) = (before.get(&seq), after.get(&seq));
            if let Some(problem) = problem(verb, was, is, now) {
                let id = was.or(is).map_or(Uuid::nil(), |row| row.id);
                let tell = |row: Option<&Row>| row.map_or_else(|| "nothing".into(), Row::tell);
                let (name, by, was, is) = (self.name(id), verb.name(), tell(was), tell(is));
                self.breach(format!("I6: {problem}: by {by} {name} was {was} and is {is}"));
            }
            self.changed(verb, was, is);
            if let Some(is) = is {
                self.seen.insert(seq, is.clone());
            } else if let (Some(row), Verb::Ack { .. }) = (self.seen.get_mut(&seq), verb) {
                row.status = State::Delivered;
            }
        }
        self.rows = after;
    }

    fn changed(&mut self, verb: &Verb, was: Option<&Row>, is: Option<&Row>) {
        let Some(was) = was else { return };
        let held = was.locked_by.and_then(|worker| self.latest.get(&(was.id, worker, was.attempts)).copied());
        match (verb, is) {
            (Verb::Extend(_), Some(is)) => {
                if let Some(claim) = held.map(|at| &mut self.claims[at]) {
                    claim.until = is.locked_until.unwrap_or(claim.until);
                }
                return;
            }
            (Verb::Claim { worker }, Some(is)) => self.claimed(*worker, is, held),
            (Verb::Ack { .. }, _) if held.is_none_or(|at| self.claims[at].arrivals == 0) => {
                self.breach(format!("I6: {} was delivered by an attempt that had not arrived", self.name(was.id)));
            }
            (Verb::Bury(_), _) if was.attempts < was.allowed && !self.refused.contains(&was.id) => {
                self.breach(format!("I8: {} is dead with attempts left, and nobody refused it", self.name(was.id)));
            }
            _ => {}
        }
        if let Some(at) = held {
            self.claims[at].is_open = false;
        }
    }

    fn claimed(&mut self, worker: Uuid, row: &Row, held: Option<usize>) {
        self.counts.claims += 1;
        if let Some(at) = held {
            self.counts.reclaims += 1;
            if !self.claims[at].disturbed {
                let name = self.name(row.id);
                self.breach(format!("R17: the lease of {name} ran out although nothing disturbed its relay"));
            }
        }
        let trouble = self.troubles.entry(worker).or_default();
        let disturbed = trouble.frozen || trouble.dead || trouble.until.is_some_and(|until| Instant::now() < until);
        self.latest.insert((row.id, worker, row.attempts), self.claims.len());
        self.claims.push(Claim {
            id: row.id,
            worker,
            attempt: row.attempts,
            until: row.locked_until.unwrap_or_default(),
            is_open: true,
            disturbed,
            late: trouble.frozen,
            arrivals: 0,
            publishes: 1,
        });
    }

    fn open_claims(&mut self, of: Option<Uuid>) -> impl Iterator<Item = &mut Claim> {
        self.claims.iter_mut().filter(move |claim| claim.is_open && of.is_none_or(|worker| claim.worker == worker))
    }

    fn claim_of(&mut self, message: &ClaimedMessage) -> Option<&mut Claim> {
        let at = self.latest.get(&(message.id, message.lease.worker, message.attempts))?;
        self.claims.get_mut(*at)
    }

    /// A relay got no proper answer from the database. What it holds, and what it claims while it tries again, is disturbed.
    pub fn disturb(&mut self, worker: Uuid, lasts: Duration) {
        let until = Instant::now() + lasts;
        let trouble = self.troubles.entry(worker).or_default();
        trouble.until = Some(trouble.until.map_or(until, |before| before.max(until)));
        self.open_claims(Some(worker)).for_each(|claim| claim.disturbed = true);
    }

    /// A statement of a relay gets to the database now, and nobody waits for its answer any more: what it claims is disturbed.
    pub fn unheard(&mut self, worker: Uuid) {
        let until = Instant::now() + Duration::from_nanos(1);
        let trouble = self.troubles.entry(worker).or_default();
        trouble.until = Some(trouble.until.map_or(until, |before| before.max(until)));
    }

    pub fn crashed(&mut self, worker: Uuid) {
        self.troubles.entry(worker).or_default().dead = true;
        self.open_claims(Some(worker)).for_each(|claim| claim.disturbed = true);
    }

    /// A relay has stopped as it was told. If it had the time it leaves nothing behind; else what it leaves is disturbed.
    pub fn ended(&mut self, worker: Uuid, ended: Ended, had_time: bool) {
        let left: Vec<Uuid> =
            self.open_claims(Some(worker)).filter(|claim| !claim.disturbed).map(|claim| claim.id).collect();
        if had_time && !left.is_empty() {
            let names: Vec<String> = left.iter().map(|id| self.name(*id)).collect();
            self.breach(format!("R27: a relay that stopped ({ended:?}) has left {} under lease", names.join(" ")));
        }
        self.crashed(worker);
    }

    /// A relay stands still, or goes on again after that.
    pub fn frozen(&mut self, worker: Uuid, frozen: bool, lasts: Duration) {
        self.disturb(worker, lasts);
        self.troubles.entry(worker).or_default().frozen = frozen;
        self.open_claims(Some(worker)).for_each(|claim| claim.late = true);
    }

    /// The database's clock went ahead: leases end early.
    pub fn jumped(&mut self) {
        self.open_claims(None).for_each(|claim| (claim.disturbed, claim.late) = (true, true));
    }

    /// The sink does not say of a message what happened; `again` if it will be published once more by the same claim.
    pub fn unclear(&mut self, message: &ClaimedMessage, again: bool) {
        if let Some(claim) = self.claim_of(message) {
            claim.disturbed = true;
            claim.publishes += u32::from(again);
        }
    }

    /// A publish begins.
    pub fn publishing(&mut self, message: &ClaimedMessage, now: i64) {
        let name = self.name(message.id);
        match self.claim_of(message) {
            None => self.breach(format!("R17: {name} is published without a claim")),
            Some(claim) if claim.until < now && !claim.late => {
                let late = Duration::from_micros(now.abs_diff(claim.until));
                self.breach(format!("R17: the publish of {name} begins {late:?} after the end of its lease"));
            }
            Some(_) => {}
        }
    }

    /// I3: what arrives was committed, and is as it was written.
    pub fn arrived(&mut self, message: &ClaimedMessage, payload: &[u8]) {
        let name = self.name(message.id);
        let written = self.names.get(&message.id).and_then(|number| self.ledger.get(number));
        let is_same = written.is_some_and(|(id, written)| {
            *id == message.id
                && written.payload == payload
                && (written.tenant, written.key.as_deref()) == (message.tenant_id, message.key.as_deref())
                && (written.namespace.as_str(), written.topic.as_str()) == (&*message.namespace, &*message.topic)
        });
        if !is_same {
            self.breach(format!("I3: {name} arrived and is not what was committed"));
        }
        self.arrivals.push(message.id);
        match self.claim_of(message) {
            None => self.breach(format!("I3: {name} arrived without a claim")),
            Some(claim) => claim.arrivals += 1,
        }
    }
}
