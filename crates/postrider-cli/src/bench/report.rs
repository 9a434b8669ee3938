//! What a run found: everything as JSON, and from that a table, a page with plots, and comparisons.

pub mod figure;
pub mod markdown;
mod plot;
pub mod table;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::figure::{METRICS, Spread, of_side, ratio};
use super::destination;
use super::machine::Machine;
use super::measure::{Ran, Round, Side};
use super::scenario::Scenario;
use super::server::Described;
use crate::exit::Failure;

/// The version of the JSON. A program that reads another one must not guess.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    /// The version of Postrider.
    pub postrider: String,
    /// `release`, or `debug`, whose figures say nothing.
    pub build: String,
    /// When the run began.
    pub began: String,
    pub quick: bool,
    pub machine: Machine,
    pub databases: Vec<OnDatabase>,
}

/// What was measured on one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnDatabase {
    #[serde(flatten)]
    pub server: Described,
    pub scenarios: Vec<OfScenario>,
    /// What was not measured, because something for it is not on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A scenario that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub scenario: String,
    pub why: String,
}

/// What was measured of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfScenario {
    #[serde(flatten)]
    pub scenario: Scenario,
    /// Where a real sink sent its messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<destination::Described>,
    /// What was wrong with what arrived; empty if nothing was.
    pub broken: Vec<String>,
    /// Median, smallest and largest of each figure, of each side, and of the ratio of ours to bare SQL.
    pub summary: BTreeMap<String, BTreeMap<String, Spread>>,
    /// The figures of every round, in their order.
    pub rounds: Vec<Round>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<f64>>,
}

impl OfScenario {
    pub fn new(scenario: &Scenario, destination: Option<destination::Described>, ran: Ran) -> Self {
        let Ran { rounds, extra, broken } = ran;
        let mut summary = BTreeMap::new();
        for metric in METRICS {
            let name = |side| {
                if side == Side::SameTable {
                    "same_table"
                } else if side == Side::Ours {
                    "ours"
                } else {
                    "bare"
                }
            };
            let sides = [Side::Bare, Side::SameTable, Side::Ours];
            let spread = |side| Some((name(side).to_owned(), of_side(&rounds, side, metric)?));
            let mut spreads: BTreeMap<String, Spread> = sides.into_iter().filter_map(spread).collect();
            spreads.extend(ratio(&rounds, Side::Bare, metric).map(|ratio| ("ours_to_bare".to_owned(), ratio)));
            spreads
                .extend(ratio(&rounds, Side::SameTable, metric).map(|ratio| ("ours_to_same_table".to_owned(), ratio)));
            if !spreads.is_empty() {
                summary.insert(metric.name.to_owned(), spreads);
            }
        }
        Self { scenario: scenario.clone(), destination, broken, summary, rounds, extra }
    }
}

impl Report {
    pub fn begin(quick: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            schema: SCHEMA,
            postrider: env!("CARGO_PKG_VERSION").to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            began: crate::output::short_time(i64::try_from(now.as_micros()).unwrap_or_default()),
            quick,
            machine: Machine::this(),
            databases: Vec::new(),
        }
    }

    /// All that was wrong with what arrived.
    pub fn broken(&self) -> Vec<String> {
        let scenarios = self.databases.iter().flat_map(|on| on.scenarios.iter().map(move |of| (on, of)));
        let say = |(on, of): (&OnDatabase, &OfScenario)| {
            let place = format!("{} on {}", of.scenario.name, on.server.database);
            of.broken.iter().map(move |what| format!("{place}: {what}")).collect::<Vec<_>>()
        };
        scenarios.flat_map(say).collect()
    }

    /// How many scenarios were not measured, on all databases together.
    pub fn left_out(&self) -> usize {
        self.databases.iter().map(|on| on.left_out.len()).sum()
    }

    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let said = |why: String| Failure::failed(format!("{} cannot be written: {why}", file.display()));
        let text = serde_json::to_string_pretty(self).map_err(|error| said(error.to_string()))?;
        std::fs::write(file, text + "\n").map_err(|error| said(error.to_string()))
    }

    pub fn read(file: &Path) -> Result<Self, Failure> {
        let said = |why: String| Failure::usage(format!("{} is no report of a benchmark: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| said(error.to_string()))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| said(error.to_string()))?;
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(said(format!("its schema is {schema}, and this postrider reads {SCHEMA}"))),
            None => return Err(said("it has no schema".into())),
        }
        serde_json::from_value(value).map_err(|error| said(error.to_string()))
    }
}
