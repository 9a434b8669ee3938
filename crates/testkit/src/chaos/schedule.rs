//! What happens when: chosen by a seed alone, so that a run can be repeated.
//!
//! Promise: the same seed, database and kinds of fault give the same steps, whatever the machine does meanwhile. What the
//! processes are doing when a step comes is not repeated: that is the chaos.

use std::fmt;
use std::time::Duration;

use super::plan::{Fault, Kind, Plan};
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
    /// So many answers to a producer's COMMIT are lost.
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
    kinds: Vec<Fault>,
    store: Kind,
    relays: usize,
    number: usize,
}

impl Schedule {
    /// The steps of a plan; none if it has no faults.
    pub fn new(plan: &Plan) -> Self {
        Self {
            chance: fastrand::Rng::with_seed(plan.seed),
            kinds: plan.faults.iter().copied().collect(),
            store: plan.store,
            relays: plan.relays,
            number: 0,
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.chance.u64(range))
    }

    fn event(&mut self, kind: Fault) -> Event {
        let place = self.chance.usize(0..self.relays);
        match kind {
            Fault::Kill => Event::Kill(place),
            Fault::Freeze => Event::Freeze(place, LEASE + self.millis(100..1_500)),
            Fault::Rolling => Event::Roll(place),
            Fault::Restart if self.chance.bool() || self.store != Kind::Postgres => {
                Event::KillStore(self.millis(100..2_000))
            }
            Fault::Restart => Event::StopStore(self.millis(100..2_000)),
            Fault::Network => self.network(),
            Fault::Sink if self.chance.bool() => Event::KillSink(self.millis(100..4_000)),
            Fault::Sink => Event::FreezeSink(self.millis(100..4_000)),
            Fault::Disk => Event::FillDisk(self.millis(500..4_000)),
        }
    }

    fn network(&mut self) -> Event {
        let mode = [Mode::Blackhole, Mode::Reset, Mode::HalfOpen][self.chance.usize(0..3)];
        let time = self.millis(200..4_000);
        // SQLite is a file: only the way to the broker is a network.
        match self.chance.usize(0..3) {
            0 if self.store != Kind::Sqlite => Event::CutCommits(self.chance.usize(1..6)),
            1 if self.store != Kind::Sqlite => Event::StoreNetwork(mode, time),
            _ => Event::SinkNetwork(mode, time),
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.kinds.is_empty() {
            return None;
        }
        self.number += 1;
        let kind = self.kinds[self.chance.usize(0..self.kinds.len())];
        let (after, event) = (self.millis(50..700), self.event(kind));
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
            Self::CutCommits(times) => write!(f, "{times} answers to COMMIT are lost"),
            Self::KillSink(time) => write!(f, "the broker is killed for {time:?}"),
            Self::FreezeSink(time) => write!(f, "the broker is frozen for {time:?}"),
            Self::FillDisk(time) => write!(f, "the disk is full for {time:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seed: u64, store: Kind) -> Vec<Step> {
        let mut plan = Plan::new("/bin/sh", store, seed);
        plan.faults = Fault::ALL.iter().copied().filter(|fault| fault.is_for(store)).collect();
        Schedule::new(&plan).take(200).collect()
    }

    #[test]
    fn a_seed_gives_the_same_steps_again_and_another_seed_others() {
        assert_eq!(steps(7, Kind::Postgres), steps(7, Kind::Postgres));
        assert_ne!(steps(7, Kind::Postgres), steps(8, Kind::Postgres));
    }

    #[test]
    fn every_kind_of_event_comes_and_sqlite_is_spared_what_it_has_not() {
        let has = |store, wanted: fn(&Event) -> bool| steps(1, store).iter().any(|step| wanted(&step.event));
        let network: fn(&Event) -> bool = |event| matches!(event, Event::StoreNetwork(..) | Event::CutCommits(_));
        let store: fn(&Event) -> bool = |event| matches!(event, Event::KillStore(_) | Event::StopStore(_));
        assert!(has(Kind::Postgres, network) && has(Kind::Postgres, store));
        assert!(!has(Kind::Sqlite, network) && !has(Kind::Sqlite, store));
        for kind in Kind::ALL {
            let freezes = |event: &Event| matches!(event, Event::Freeze(_, time) if *time > LEASE);
            assert!(has(*kind, freezes) && has(*kind, |event| matches!(event, Event::FillDisk(_))));
        }
    }

    #[test]
    fn without_faults_nothing_happens() {
        assert_eq!(Schedule::new(&Plan::new("/bin/sh", Kind::Sqlite, 1)).next(), None);
    }
}
