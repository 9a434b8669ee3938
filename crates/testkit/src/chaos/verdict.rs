//! What a run showed, and whether it passed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::coverage::Coverage;
use super::plan::{Act, Length, Plan};
use super::producers::Told;
use crate::checker::Report;

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What was run.
    pub plan: Plan,
    /// Faults that were carried out.
    pub faults: usize,
    /// What the checkers counted.
    pub report: Report,
    /// The most repeats that these faults may make.
    pub most_duplicates: i64,
    /// What the producers were told.
    pub told: Told,
    /// Replies to COMMIT that were cut in the middle.
    pub commits_cut: usize,
    /// Transactions whose end the producer does not know, and which are there.
    pub carried_out: usize,
    /// What each fault hit.
    pub coverage: Coverage,
    /// How often relays connected to the database and to the broker.
    pub connected: (usize, usize),
    /// Settles that were refused, over all relays that ever ran.
    pub leases_lost: usize,
    /// Relay processes.
    pub relays_started: usize,
    /// Relays whose counters had to equal the tables.
    pub exact_counters: usize,
    /// Bytes of logs that were searched for secrets.
    pub bytes_searched: u64,
    /// How long after a restart of the database deliveries went on, at worst.
    pub slowest_resumption: Duration,
    /// How long the faults and the load took.
    pub took: Duration,
    /// How long it then took to come to rest.
    pub rested_after: Duration,
    /// Everything that is broken; nothing if it passed.
    pub broken: Vec<String>,
}

impl Verdict {
    /// Whether every invariant holds.
    pub fn has_passed(&self) -> bool {
        self.broken.is_empty()
    }

    /// What was asked for and the run was too short for.
    pub fn never_came(&self) -> Vec<&'static str> {
        self.coverage.never_came(&self.plan).into_iter().map(Act::word).collect()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Plan { store, broker, seed, faults, left_out, length, relays, .. } = &self.plan;
        let Length { cycles, messages, time } = length;
        json!({
            "passed": self.has_passed(),
            "broken": self.broken,
            "seed": seed,
            "store": store.word(),
            "broker": broker.word(),
            "kinds_of_fault": faults.iter().map(|fault| fault.word()).collect::<Vec<_>>(),
            "left_out": left_out.iter().map(|(fault, why)| (fault.word(), why)).collect::<BTreeMap<_, _>>(),
            "never_came": self.never_came(),
            "coverage": self.coverage.to_json(),
            "asked": { "cycles": cycles, "messages": messages, "seconds": time.map(|time| time.as_secs()) },
            "relays": relays,
            "relays_started": self.relays_started,
            "faults": self.faults,
            "messages": self.report.messages,
            "dead": self.report.dead,
            "duplicates": self.report.duplicates,
            "most_duplicates": self.most_duplicates,
            "reclaims": self.report.reclaims,
            "slowest_reclaim_ms": self.report.slowest_reclaim.as_millis(),
            "leases_lost": self.leases_lost,
            "transactions_aborted": self.told.aborted.len(),
            "transactions_unknown": self.told.unknown.len(),
            "unknown_and_committed": self.carried_out,
            "commits_cut": self.commits_cut,
            "connections_to_database": self.connected.0,
            "connections_to_broker": self.connected.1,
            "exact_counters": self.exact_counters,
            "bytes_searched": self.bytes_searched,
            "slowest_resumption_ms": self.slowest_resumption.as_millis(),
            "seconds": self.took.as_secs_f64(),
            "rested_after_seconds": self.rested_after.as_secs_f64(),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { messages, dead, duplicates, reclaims, slowest_reclaim } = self.report;
        let word = if self.has_passed() { "passed" } else { "FAILED" };
        writeln!(f, "{word}: {} on {}, seed {}", self.plan.store.word(), self.plan.broker.word(), self.plan.seed)?;
        writeln!(f, "  {} faults, {messages} messages, {dead} dead", self.faults)?;
        write!(f, "{}", self.coverage)?;
        if !self.never_came().is_empty() {
            writeln!(f, "  NEVER CAME, the run was too short: {}", self.never_came().join("; "))?;
        }
        for (fault, why) in &self.plan.left_out {
            writeln!(f, "  LEFT OUT: {}: {why}", fault.word())?;
        }
        writeln!(f, "  {duplicates} duplicates, at most {} may be", self.most_duplicates)?;
        writeln!(
            f,
            "  {reclaims} claims of an ended lease, the slowest after {slowest_reclaim:.1?}; {} settles refused",
            self.leases_lost
        )?;
        writeln!(
            f,
            "  producers: {} transactions aborted, {} failed or of unknown end, {} of these were committed; {} replies to COMMIT cut",
            self.told.aborted.len(),
            self.told.unknown.len(),
            self.carried_out,
            self.commits_cut
        )?;
        let (database, broker) = self.connected;
        writeln!(f, "  relays connected {database} times to the database and {broker} times to the broker")?;
        if !self.slowest_resumption.is_zero() {
            writeln!(f, "  slowest resumption after a restart of the database: {:.1?}", self.slowest_resumption)?;
        }
        writeln!(
            f,
            "  {} relay processes; counters of {} held against the tables; {:.1} MB of logs searched",
            self.relays_started,
            self.exact_counters,
            self.bytes_searched as f64 / 1e6
        )?;
        write!(f, "  {:.1?}, and at rest {:.1?} later", self.took, self.rested_after)?;
        self.broken.iter().try_for_each(|line| write!(f, "\n  broken: {line}"))
    }
}
