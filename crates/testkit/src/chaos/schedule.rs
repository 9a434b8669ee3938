//! What happens when: chosen by a seed alone, so that a run can be repeated.
//!
//! Promise: the same seed, database and kinds of fault give the same steps, whatever the machine does meanwhile. What the
//! processes are doing when a step comes is not repeated: that is the chaos. Everything that may happen happens once, in an order of
//! the seed's, before anything happens again, so that a short run has all of it.

use std::fmt;
use std::time::Duration;

use super::plan::{Act, Plan};
use super::relay::LEASE;
use crate::proxy::Mode;

/// Something that goes wrong, in detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// kill -9 of the relay in this place; another takes its place.
    Kill(usize),
    /// SIGSTOP of the relay in this place for so long.
    Freeze(usize, Duration),
    /// A new relay comes and the one in this place is told to stop.
    Roll(usize),
    /// The database server is killed, with all its processes, for so long.
    KillStore(Duration),
    /// The database server stops at once, without tidying up, for so long.
    StopStore(Duration),
    /// The network between relays and database.
    StoreNetwork(Mode, Duration),
    /// The network between relays and broker.
    SinkNetwork(Mode, Duration),
    /// So many replies to a producer's COMMIT are cut in the middle.
    CutCommits(usize),
    /// The broker is killed for so long.
    KillSink(Duration),
    /// The broker is frozen for so long.
    FreezeSink(Duration),
    /// The file system of the database is full for so long.
    FillDisk(Duration),
}

/// An event and how much is let happen before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub number: usize,
    /// How long after the one before.
    pub after: Duration,
    /// What happens.
    pub event: Event,
}

/// An endless list of steps.
pub struct Schedule {
    chance: fastrand::Rng,
    acts: Vec<Act>,
    /// Those that come before any comes again, the next one last.
    deck: Vec<Act>,
    relays: usize,
    number: usize,
}

impl Schedule {
    /// The steps of a plan; none if it has no faults.
    pub fn new(plan: &Plan) -> Self {
        let (chance, acts) = (fastrand::Rng::with_seed(plan.seed), plan.acts().collect());
        Self { chance, acts, deck: Vec::new(), relays: plan.relays, number: 0 }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.chance.u64(range))
    }

    fn act(&mut self) -> Option<Act> {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.acts);
            self.chance.shuffle(&mut self.deck);
        }
        self.deck.pop()
    }

    fn event(&mut self, act: Act) -> Event {
        let place = self.chance.usize(0..self.relays);
        let outage = self.millis(200..4_000);
        match act {
            Act::Kill => Event::Kill(place),
            Act::Freeze => Event::Freeze(place, LEASE + self.millis(100..1_500)),
            Act::Roll => Event::Roll(place),
            Act::KillStore => Event::KillStore(self.millis(100..2_000)),
            Act::StopStore => Event::StopStore(self.millis(100..2_000)),
            Act::StoreBlackhole => Event::StoreNetwork(Mode::Blackhole, outage),
            Act::StoreReset => Event::StoreNetwork(Mode::Reset, outage),
            Act::StoreHalfOpen => Event::StoreNetwork(Mode::HalfOpen, outage),
            Act::CutCommits => Event::CutCommits(self.chance.usize(1..6)),
            Act::SinkBlackhole => Event::SinkNetwork(Mode::Blackhole, outage),
            Act::SinkReset => Event::SinkNetwork(Mode::Reset, outage),
            Act::SinkHalfOpen => Event::SinkNetwork(Mode::HalfOpen, outage),
            Act::KillSink => Event::KillSink(outage),
            Act::FreezeSink => Event::FreezeSink(outage),
            Act::FillDisk => Event::FillDisk(outage),
        }
    }
}

impl Event {
    /// What it is an instance of.
    pub fn act(self) -> Act {
        match self {
            Self::Kill(_) => Act::Kill,
            Self::Freeze(..) => Act::Freeze,
            Self::Roll(_) => Act::Roll,
            Self::KillStore(_) => Act::KillStore,
            Self::StopStore(_) => Act::StopStore,
            Self::StoreNetwork(Mode::Blackhole, _) => Act::StoreBlackhole,
            Self::StoreNetwork(Mode::HalfOpen, _) => Act::StoreHalfOpen,
            Self::StoreNetwork(..) => Act::StoreReset,
            Self::CutCommits(_) => Act::CutCommits,
            Self::SinkNetwork(Mode::Blackhole, _) => Act::SinkBlackhole,
            Self::SinkNetwork(Mode::HalfOpen, _) => Act::SinkHalfOpen,
            Self::SinkNetwork(..) => Act::SinkReset,
            Self::KillSink(_) => Act::KillSink,
            Self::FreezeSink(_) => Act::FreezeSink,
            Self::FillDisk(_) => Act::FillDisk,
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let act = self.act()?;
        self.number += 1;
        let (after, event) = (self.millis(50..700), self.event(act));
        Some(Step { number: self.number, after, event })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}  +{:>3} ms  {}", self.number, self.after.as_millis(), self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = |mode: &Mode| match mode {
            Mode::Blackhole => "a black hole",
            Mode::HalfOpen => "half open",
            _ => "reset",
        };
        match self {
            Self::Kill(place) => write!(f, "relay {place} is killed"),
            Self::Freeze(place, time) => write!(f, "relay {place} is frozen for {time:?}"),
            Self::Roll(place) => write!(f, "relay {place} is replaced in good order"),
            Self::KillStore(time) => write!(f, "the database is killed for {time:?}"),
            Self::StopStore(time) => write!(f, "the database stops at once for {time:?}"),
            Self::StoreNetwork(how, time) => write!(f, "the way to the database is {} for {time:?}", mode(how)),
            Self::SinkNetwork(how, time) => write!(f, "the way to the broker is {} for {time:?}", mode(how)),
            Self::CutCommits(times) => write!(f, "{times} replies to COMMIT are cut"),
            Self::KillSink(time) => write!(f, "the broker is killed for {time:?}"),
            Self::FreezeSink(time) => write!(f, "the broker is frozen for {time:?}"),
            Self::FillDisk(time) => write!(f, "the disk is full for {time:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::plan::{Fault, Kind};

    fn plan(seed: u64, store: Kind) -> Plan {
        let mut plan = Plan::new("/bin/sh", store, seed);
        plan.faults = Fault::ALL.iter().copied().filter(|fault| fault.is_for(store)).collect();
        plan
    }

    fn steps(seed: u64, store: Kind) -> Vec<Step> {
        Schedule::new(&plan(seed, store)).take(200).collect()
    }

    #[test]
    fn a_seed_gives_the_same_steps_again_and_another_seed_others() {
        assert_eq!(steps(7, Kind::Postgres), steps(7, Kind::Postgres));
        assert_ne!(steps(7, Kind::Postgres), steps(8, Kind::Postgres));
    }

    #[test]
    fn everything_comes_once_before_anything_comes_again_and_sqlite_is_spared_what_it_has_not() {
        for (store, count) in [(Kind::Postgres, 15), (Kind::MariaDb, 14), (Kind::Sqlite, 9)] {
            let all: Vec<Act> = plan(1, store).acts().collect();
            assert_eq!(all.len(), count);
            for round in steps(1, store).chunks_exact(count) {
                let mut acts: Vec<Act> = round.iter().map(|step| step.event.act()).collect();
                acts.sort_unstable();
                assert_eq!(acts, all);
            }
        }
    }

    #[test]
    fn a_freeze_lasts_longer_than_a_lease() {
        let is_short = |step: &Step| matches!(step.event, Event::Freeze(_, time) if time <= LEASE);
        assert!(!steps(1, Kind::Sqlite).iter().any(is_short));
    }

    #[test]
    fn without_faults_nothing_happens() {
        assert_eq!(Schedule::new(&Plan::new("/bin/sh", Kind::Sqlite, 1)).next(), None);
    }
}
