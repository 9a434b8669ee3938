//! How often each thing went wrong, and how often that met something.
//!
//! A fault that nothing feels shows nothing: a frozen relay that holds no message, or a cut when nobody commits. So each fault says
//! what it hit, and a run in which one of them never hit anything has not passed.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::plan::{Act, Plan};

/// What came of one thing that can go wrong.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// How often it was done.
    pub made: usize,
    /// How often that hit something.
    pub hit: usize,
    /// How much it hit in all, counted as [`Act::unit`] says.
    pub sum: usize,
}

/// What came of all of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Act, Tally>);

impl Act {
    /// What is counted where it hits something.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Kill => "messages in the hands of those that died",
            Self::Freeze => "messages taken over by others meanwhile",
            Self::Roll => "messages in the hands of those that were told to stop",
            Self::KillStore | Self::StopStore => "connections of relays lost",
            Self::StoreBlackhole | Self::StoreHalfOpen | Self::SinkBlackhole | Self::SinkHalfOpen => {
                "connections lost bytes"
            }
            Self::StoreReset | Self::SinkReset => "connections reset",
            Self::CutCommits => "replies cut",
            Self::KillSink | Self::FreezeSink => "messages waited for the broker",
            Self::FillDisk => "transactions of producers failed",
        }
    }
}

impl Coverage {
    /// It was done, and hit so much.
    pub fn note(&mut self, act: Act, sum: usize) {
        let tally = self.0.entry(act).or_default();
        tally.made += 1;
        tally.hit += usize::from(sum > 0);
        tally.sum += sum;
    }

    /// What came of one.
    pub fn of(&self, act: Act) -> Tally {
        self.0.get(&act).copied().unwrap_or_default()
    }

    /// What was done and never hit anything: such a run shows less than it says.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.0.iter().filter(|(_, tally)| tally.hit == 0);
        missed
            .map(|(act, tally)| format!("coverage: {}, {} times, and it never hit anything", act.word(), tally.made))
            .collect()
    }

    /// What a plan asks for and the run was too short for.
    pub fn never_came(&self, plan: &Plan) -> Vec<Act> {
        plan.acts().filter(|act| !self.0.contains_key(act)).collect()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let line = |(act, tally): (&Act, &Tally)| {
            let Tally { made, hit, sum } = tally;
            (act.word().to_owned(), json!({ "made": made, "hit": hit, "sum": sum, "of": act.unit() }))
        };
        Value::Object(self.0.iter().map(line).collect())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(act, Tally { made, hit, sum })| {
            writeln!(f, "  {:<21} {made:>4} times, {hit:>4} hit: {sum} {}", act.word(), act.unit())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::plan::{Fault, Kind};

    #[test]
    fn what_never_hit_anything_is_named_and_so_is_what_never_came() {
        let mut plan = Plan::new("/bin/sh", Kind::Postgres, 1);
        plan.faults = [Fault::Kill, Fault::Freeze, Fault::Restart].into();
        let mut coverage = Coverage::default();
        coverage.note(Act::Kill, 0);
        coverage.note(Act::Kill, 7);
        coverage.note(Act::Freeze, 0);
        coverage.note(Act::KillStore, 3);
        assert_eq!(coverage.of(Act::Kill), Tally { made: 2, hit: 1, sum: 7 });
        assert_eq!(coverage.missed(), ["coverage: relay frozen, 1 times, and it never hit anything"]);
        assert_eq!(coverage.never_came(&plan), [Act::StopStore]);
        assert_eq!(coverage.to_json()["relay killed"]["sum"], 7);
        coverage.note(Act::Freeze, 1);
        assert!(coverage.missed().is_empty());
    }
}
