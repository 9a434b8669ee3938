//! Running a scenario: every round does the same work with bare SQL and with Postrider, one after the other, so that whatever else
//! the machine does falls on both.

mod bare_loop;
mod drain;
mod enqueue;
mod fair;
mod history;
mod latency;
mod relays;
mod to_sink;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use postrider::Sink;
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::letter::Letters;
use super::meter::Measured;
use super::progress::Progress;
use super::scenario::{Kind, Scenario};
use super::server::{Server, Site, Table};

pub use drain::Relay;

/// Everything that a scenario is run with.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    pub server: &'a dyn Server,
    pub scenario: &'a Scenario,
    /// Where messages go, in the scenario of a sink.
    pub destination: Option<&'a dyn Destination>,
    /// The sink that leads to a place there, while a side is run.
    pub sink: Option<&'a Arc<dyn Sink>>,
    pub progress: &'a Progress,
}

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Bare SQL on a table with nothing but what it needs.
    Bare,
    /// Bare SQL on our table, whose indexes also serve expired leases, lanes, dedupe keys and retention.
    SameTable,
    /// Postrider.
    Ours,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare SQL",
            Self::SameTable => "bare SQL on our table",
            Self::Ours => "postrider",
        }
    }

    fn table(self) -> Table {
        if self == Self::Bare { Table::Bare } else { Table::Ours }
    }
}

/// One side of one round: its figures, and what was wrong with what arrived.
pub struct Outcome {
    pub measured: Measured,
    pub broken: Vec<String>,
}

/// The figures of all sides in one round.
pub type Round = BTreeMap<Side, Measured>;

/// What came of a scenario.
#[derive(Default)]
pub struct Ran {
    pub rounds: Vec<Round>,
    /// Figures that only this kind of scenario has, one per round.
    pub extra: BTreeMap<String, Vec<f64>>,
    pub broken: Vec<String>,
}

impl Ran {
    /// Takes note of a side.
    fn add(&mut self, round: &mut Round, side: Side, outcome: Outcome) {
        round.insert(side, outcome.measured);
        self.broken.extend(outcome.broken.into_iter().map(|what| format!("{}: {what}", side.name())));
    }
}

/// Runs a scenario.
pub async fn run(stage: Stage<'_>, rounds: u32) -> Result<Ran> {
    if stage.scenario.kind == Kind::History {
        return history::run(stage, rounds).await;
    }
    if stage.destination.is_some() {
        to_sink::warm_up(stage).await?;
    }
    let mut ran = Ran::default();
    for number in 1..=rounds {
        let mut round = Round::new();
        for side in sides(stage.scenario) {
            stage.progress.now(stage.scenario, number, rounds, side);
            let outcome = one(stage, side).await?;
            ran.add(&mut round, side, outcome);
            stage.progress.step();
        }
        ran.rounds.push(round);
    }
    Ok(ran)
}

/// Who takes part.
pub fn sides(scenario: &Scenario) -> Vec<Side> {
    match scenario.kind {
        // Without claims that are fair a small tenant waits for the whole backlog: there is nothing to compare with.
        Kind::Fair => vec![Side::Ours],
        _ if scenario.with.same_table => vec![Side::Bare, Side::SameTable, Side::Ours],
        _ => vec![Side::Bare, Side::Ours],
    }
}

async fn one(stage: Stage<'_>, side: Side) -> Result<Outcome> {
    let site = stage.server.site().await?;
    let outcome = match stage.scenario.kind {
        Kind::Enqueue => enqueue::run(stage, &*site, side).await,
        Kind::Steady | Kind::Idle => latency::run(stage, &*site, side).await,
        Kind::Fair => fair::run(stage, &*site).await,
        Kind::Sink => to_sink::run(stage, &*site, side).await,
        Kind::Relays if side == Side::Ours => relays::run(stage, &*site).await,
        _ if side == Side::Ours => drain::run(stage, &*site).await,
        _ => bare_loop::run(stage, &*site, side.table()).await,
    };
    site.close().await;
    outcome
}

/// Fills a table with all messages of a backlog, in their order.
async fn fill(stage: Stage<'_>, site: &dyn Site, table: Table) -> Result<()> {
    let letters = Letters::of(&stage.scenario.with);
    let (messages, most) = (stage.scenario.with.messages, letters.per_statement());
    let mut client = site.client(table, &letters).await?;
    for from in (0..messages).step_by(most as usize) {
        let count = most.min(messages - from);
        match table {
            Table::Ours => client.write(from, count).await?,
            Table::Bare => site.fill_bare(from, count, &letters).await?,
        }
    }
    Ok(())
}

/// A snapshot that somebody holds, if the scenario says so.
async fn held(stage: Stage<'_>, site: &dyn Site) -> Result<Option<Box<dyn Send>>> {
    Ok(match stage.scenario.kind {
        Kind::Snapshot => Some(site.snapshot().await?),
        _ => None,
    })
}
