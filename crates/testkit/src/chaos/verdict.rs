//! What a run showed, and whether it passed.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::{Length, Plan};
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
    /// Answers to COMMIT that were lost.
    pub commits_cut: usize,
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

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Plan { store, broker, seed, faults, length, relays, .. } = &self.plan;
        let Length { cycles, messages, time } = length;
        json!({
            "passed": self.has_passed(),
            "broken": self.broken,
            "seed": seed,
            "store": store.word(),
            "broker": broker.word(),
            "kinds_of_fault": faults.iter().map(|fault| fault.word()).collect::<Vec<_>>(),
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
            "transactions_aborted": self.told.aborted,
            "transactions_unknown": self.told.unknown,
            "commits_cut": self.commits_cut,
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
        writeln!(f, "  {duplicates} duplicates, at most {} may be", self.most_duplicates)?;
        writeln!(
            f,
            "  {reclaims} claims of an ended lease, the slowest after {slowest_reclaim:.1?}; {} settles refused",
            self.leases_lost
        )?;
        writeln!(
            f,
            "  producers: {} transactions aborted, {} failed or not known; {} answers to COMMIT lost",
            self.told.aborted, self.told.unknown, self.commits_cut
        )?;
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
