//! What a run is: where, with which faults, how long, and the presets for the goals.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::disk::Disk;

/// The words of an enumeration, for reading and printing.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal, $($variant:ident = $word:literal: $doc:literal,)+) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $doc] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its word on the command line.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl FromStr for $name {
            type Err = anyhow::Error;

            fn from_str(text: &str) -> Result<Self> {
                let known = Self::ALL.iter().map(|one| one.word()).collect::<Vec<_>>().join(", ");
                match Self::ALL.iter().find(|one| one.word() == text) {
                    Some(one) => Ok(*one),
                    None => bail!(concat!("`{}` is no ", $what, "; known are {}"), text, known),
                }
            }
        }
    };
}

words! {
    /// The database under the outbox.
    Kind, "store",
    Postgres = "postgres": "PostgreSQL.",
    MariaDb = "mariadb": "MariaDB.",
    Sqlite = "sqlite": "SQLite.",
}

words! {
    /// Where messages go.
    Broker, "broker",
    Nats = "nats": "NATS JetStream, a stream in files.",
    Redis = "redis": "Redis Streams, each write synced.",
}

words! {
    /// A kind of fault.
    Fault, "kind of fault",
    Kill = "kill": "kill -9 of a relay, and another one in its place.",
    Freeze = "freeze": "SIGSTOP of a relay past its leases, then SIGCONT.",
    Restart = "restart": "The database server is killed or stopped at once, and comes back.",
    Network = "network": "Black hole, reset, half-open connections, and replies to COMMIT that are cut in the middle.",
    Sink = "sink": "The broker is killed or frozen, and comes back.",
    Rolling = "rolling": "A new relay, then SIGTERM for an old one.",
    Disk = "disk": "The file system of the database is full for a while.",
}

words! {
    /// What goes wrong in particular; each kind of fault has one or several.
    Act, "fault",
    Kill = "relay killed": "kill -9 of a relay.",
    Freeze = "relay frozen": "SIGSTOP of a relay that holds messages, until others have taken some of them.",
    Roll = "relay replaced": "A new relay, then SIGTERM for one that holds messages.",
    KillStore = "database killed": "All processes of the server at once.",
    StopStore = "database stopped": "PostgreSQL's immediate shutdown.",
    StoreBlackhole = "database, black hole": "Nothing passes between relays and database.",
    StoreReset = "database, reset": "Connections between relays and database are reset.",
    StoreHalfOpen = "database, half open": "The relays' statements pass, and answers are lost.",
    CutCommits = "COMMIT's reply cut": "A producer gets the first half of a reply to COMMIT.",
    SinkBlackhole = "broker, black hole": "Nothing passes between relays and broker.",
    SinkReset = "broker, reset": "Connections between relays and broker are reset.",
    SinkHalfOpen = "broker, half open": "Publishes pass, and answers are lost.",
    KillSink = "broker killed": "And started again.",
    FreezeSink = "broker frozen": "SIGSTOP, and SIGCONT.",
    FillDisk = "disk full": "The file system of the database.",
}

words! {
    /// A row of the table of goals.
    Goal, "goal",
    Kills = "kills": "kill -9 of relays under load.",
    NoFaults = "no-faults": "Several processes and no faults: nothing lost, nothing twice.",
    Freeze = "freeze": "SIGSTOP past the lease: no stale settle is accepted.",
    Restarts = "restarts": "The database is killed and comes back: relays resume within ten seconds.",
    Rolling = "rolling": "Rolling restarts: nothing lost, nothing twice, no attempt spent.",
}

impl Broker {
    /// Whether it drops what it got shortly before: NATS has a window of 100 ms at least. A broker that was frozen finds two attempts
    /// of one message in its queue, and takes one.
    pub fn drops_repeats(self) -> bool {
        self == Self::Nats
    }
}

impl Fault {
    /// Whether a database can have it: SQLite has neither a server nor a network.
    pub fn is_for(self, store: Kind) -> bool {
        store != Kind::Sqlite || self != Self::Restart
    }
}

impl Act {
    /// The kind of fault that it belongs to.
    pub fn kind(self) -> Fault {
        match self {
            Self::Kill => Fault::Kill,
            Self::Freeze => Fault::Freeze,
            Self::Roll => Fault::Rolling,
            Self::KillStore | Self::StopStore => Fault::Restart,
            Self::KillSink | Self::FreezeSink => Fault::Sink,
            Self::FillDisk => Fault::Disk,
            _ => Fault::Network,
        }
    }

    /// Whether a database can have it: of SQLite's ways only the one to the broker is a network.
    pub fn is_for(self, store: Kind) -> bool {
        match self {
            Self::StopStore => store == Kind::Postgres,
            Self::StoreBlackhole | Self::StoreReset | Self::StoreHalfOpen | Self::CutCommits => store != Kind::Sqlite,
            other => other.kind().is_for(store),
        }
    }
}

/// When a run is long enough: when everything that is given here has been reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length {
    /// So many faults.
    pub cycles: Option<usize>,
    /// So many messages, committed for sure.
    pub messages: Option<usize>,
    /// So much time.
    pub time: Option<Duration>,
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The binary `postrider`.
    pub binary: PathBuf,
    /// The database.
    pub store: Kind,
    /// The destination.
    pub broker: Broker,
    /// What all choices are made by.
    pub seed: u64,
    /// What may happen.
    pub faults: BTreeSet<Fault>,
    /// What was asked for and this machine cannot do, and why.
    pub left_out: Vec<(Fault, String)>,
    /// How long.
    pub length: Length,
    /// Relays at the same time.
    pub relays: usize,
    /// The level of the relays' logs.
    pub log_level: String,
    /// Where the logs of relays are kept if the run fails; otherwise nothing is left.
    pub keep: Option<PathBuf>,
}

/// What the short form of continuous integration is: cycles and messages.
pub const SHORT: [(Kind, usize, usize); 3] =
    [(Kind::Postgres, 50, 20_000), (Kind::MariaDb, 10, 2_000), (Kind::Sqlite, 10, 2_000)];

impl Plan {
    /// A plan without faults and without an end.
    pub fn new(binary: impl Into<PathBuf>, store: Kind, seed: u64) -> Self {
        Self {
            binary: binary.into(),
            store,
            broker: Broker::Nats,
            seed,
            faults: BTreeSet::new(),
            left_out: Vec::new(),
            length: Length::default(),
            relays: 3,
            log_level: "trace".into(),
            keep: None,
        }
    }

    /// The sizes of a goal.
    pub fn goal(mut self, goal: Goal) -> Self {
        let by_store = |postgres, mariadb, sqlite| match self.store {
            Kind::Postgres => postgres,
            Kind::MariaDb => mariadb,
            Kind::Sqlite => sqlite,
        };
        let (fault, cycles, messages) = match goal {
            Goal::Kills => (Some(Fault::Kill), by_store(1_000, 300, 200), by_store(500_000, 100_000, 40_000)),
            Goal::NoFaults => (None, 0, by_store(1_000_000, 200_000, 50_000)),
            Goal::Freeze => (Some(Fault::Freeze), 300, by_store(60_000, 30_000, 15_000)),
            Goal::Restarts => (Some(Fault::Restart), 100, by_store(40_000, 20_000, 10_000)),
            Goal::Rolling => (Some(Fault::Rolling), 200, by_store(60_000, 30_000, 15_000)),
        };
        self.faults = fault.into_iter().collect();
        self.length = Length { cycles: Some(cycles), messages: Some(messages), time: None };
        self
    }

    /// The short form of a store.
    pub fn short(mut self) -> Self {
        let sizes = SHORT.iter().find(|(store, ..)| *store == self.store);
        self.faults = BTreeSet::from([Fault::Kill]);
        self.length.cycles = sizes.map(|(_, cycles, _)| *cycles);
        self.length.messages = sizes.map(|(.., messages)| *messages);
        self
    }

    /// Every kind of fault that the store can have. What this machine cannot do is left out, and that is said.
    pub fn everything(mut self) -> Self {
        self.faults = Fault::ALL.iter().copied().filter(|fault| fault.is_for(self.store)).collect();
        if let Err(error) = Disk::mount(Disk::SMALLEST) {
            self.faults.remove(&Fault::Disk);
            self.left_out.push((Fault::Disk, error.to_string()));
        }
        self
    }

    /// All that may happen in particular.
    pub fn acts(&self) -> impl Iterator<Item = Act> {
        Act::ALL.iter().copied().filter(|act| self.has(act.kind()) && act.is_for(self.store))
    }

    /// Whether something may happen.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether nothing may happen that makes a repeat: every relay ends in good order and every answer arrives.
    pub fn is_gentle(&self) -> bool {
        self.faults.iter().all(|fault| *fault == Fault::Rolling)
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<()> {
        let Length { cycles, messages, time } = self.length;
        ensure!(cycles.is_some() || messages.is_some() || time.is_some(), "give --cycles, --messages or --minutes");
        ensure!(self.relays > 0, "a run without relays delivers nothing");
        for fault in &self.faults {
            ensure!(fault.is_for(self.store), "{} has no server: leave `{}` out", self.store.word(), fault.word());
        }
        ensure!(
            self.relays > 1 || !self.has(Fault::Freeze),
            "nobody takes over from a frozen relay: give --relays 2 or more, or leave `freeze` out"
        );
        ensure!(
            !self.faults.is_empty() || cycles.unwrap_or(0) == 0,
            "{} faults were asked for and none are allowed: give --faults",
            cycles.unwrap_or(0)
        );
        ensure!(
            self.binary.is_file(),
            "{} is not there: build it with `cargo build -p postrider-cli`, or give --binary",
            self.binary.display()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(store: Kind) -> Plan {
        Plan::new("/bin/sh", store, 1)
    }

    #[test]
    fn the_goals_have_the_sizes_of_their_table() {
        let kills = |store| plan(store).goal(Goal::Kills).length;
        assert_eq!((kills(Kind::Postgres).cycles, kills(Kind::Postgres).messages), (Some(1_000), Some(500_000)));
        assert_eq!((kills(Kind::MariaDb).cycles, kills(Kind::MariaDb).messages), (Some(300), Some(100_000)));
        assert_eq!((kills(Kind::Sqlite).cycles, kills(Kind::Sqlite).messages), (Some(200), Some(40_000)));
        let none = plan(Kind::Postgres).goal(Goal::NoFaults);
        assert!(none.is_gentle() && none.length.messages == Some(1_000_000) && none.check().is_ok());
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_a_reason() {
        let refused = |plan: Plan| plan.check().expect_err("refused").to_string();
        assert!(refused(plan(Kind::Sqlite)).contains("give --cycles"));
        assert!(refused(plan(Kind::Sqlite).goal(Goal::Restarts)).contains("sqlite has no server: leave `restart` out"));
        assert!(refused(Plan::new("/nowhere", Kind::Sqlite, 1).short()).contains("/nowhere is not there"));
        let mut alone = plan(Kind::Sqlite).goal(Goal::Freeze);
        alone.relays = 1;
        assert!(refused(alone).contains("nobody takes over from a frozen relay"));
        let mut without = plan(Kind::Sqlite).short();
        without.faults.clear();
        assert!(refused(without).contains("give --faults"));
    }

    #[test]
    fn everything_is_all_that_the_store_can_have_and_what_is_left_out_is_said() {
        for store in Kind::ALL {
            let all = plan(*store).everything();
            assert_eq!(all.has(Fault::Restart), *store != Kind::Sqlite);
            let left_out: Vec<Fault> = all.left_out.iter().map(|(fault, _)| *fault).collect();
            assert_eq!(left_out, if all.has(Fault::Disk) { vec![] } else { vec![Fault::Disk] });
            let missing = Fault::ALL.iter().filter(|fault| fault.is_for(*store) && !all.has(**fault));
            assert_eq!(missing.count(), left_out.len());
        }
        let acts = |store| plan(store).everything().acts().filter(|act| act.kind() == Fault::Network).count();
        assert_eq!((acts(Kind::Postgres), acts(Kind::MariaDb), acts(Kind::Sqlite)), (7, 7, 3));
    }

    #[test]
    fn words_are_read_and_unknown_ones_name_the_known() {
        assert_eq!("freeze".parse::<Fault>().expect("known"), Fault::Freeze);
        let error = "fire".parse::<Fault>().expect_err("unknown").to_string();
        assert!(error.contains("`fire` is no kind of fault") && error.contains("kill, freeze"), "{error}");
    }
}
