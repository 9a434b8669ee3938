//! One run of the benchmark: every chosen scenario on every database, and the report.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::args::Options;
use super::choice::chosen;
use super::destination::named::Named;
use super::destination::{self, Destination};
use super::measure::{self, Ran, Stage, sides};
use super::progress::Progress;
use super::report::{LeftOut, OfScenario, OnDatabase, Report, markdown, table};
use super::scenario::Scenario;
use super::server::{self, Server};
use crate::args::Colour;
use crate::exit::{BY_SIGNAL, Failure};
use crate::relay::signals::Signals;

/// How long dropping a database may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(names: &[String], options: &Options, colour: Colour) -> Result<ExitCode, Failure> {
    let scenarios = chosen(names, options.quick)?;
    let named = Named::at(&options.sink, &scenarios).await?;
    let wanted = Wanted { names, scenarios: &scenarios, named: &named, rounds: options.rounds() };
    wanted.check()?;
    if cfg!(debug_assertions) && !options.quick {
        eprintln!(
            "postrider: warning: this is an unoptimised build; build with --release for figures that mean something"
        );
    }
    let mut signals = Signals::listen()?;
    let mut report = Report::begin(options.quick);
    for url in options.urls() {
        let server = server::open(url.expose()).await?;
        for stale in server.stale() {
            eprintln!(
                "postrider: {stale} is there from an earlier run or from one that still goes on; drop it if nobody uses it"
            );
        }
        // Whatever happens in between, the database is dropped.
        let measured = tokio::select! {
            measured = all(&*server, wanted) => Ok(measured),
            signal = signals.stop() => Err(signal),
        };
        let removed = tokio::time::timeout(PATIENCE, server.remove()).await;
        removed.map_err(|_| anyhow::anyhow!("the benchmark's database could not be dropped in time"))??;
        match measured {
            Ok(measured) => report.databases.push(measured?),
            Err(signal) => {
                eprintln!("postrider: stopped; what the benchmark made was removed");
                return Ok(ExitCode::from(u8::try_from(BY_SIGNAL + signal).unwrap_or(1)));
            }
        }
    }
    tell(&report, options, colour)
}

/// What is to be measured, whatever the database.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    names: &'a [String],
    scenarios: &'a [Scenario],
    named: &'a Named,
    rounds: u32,
}

impl Wanted<'_> {
    /// Whether a scenario was asked for by its own name, and not by a pattern.
    fn by_name(&self, scenario: &Scenario) -> bool {
        self.names.contains(&scenario.name)
    }

    /// What was asked for by name must not be left out; as far as it can be told, it is told before anything is made.
    fn check(&self) -> Result<(), Failure> {
        for scenario in self.scenarios.iter().filter(|scenario| self.by_name(scenario)) {
            let Some(kind) = scenario.sink.filter(|kind| !self.named.has(*kind)) else { continue };
            if let Some(why) = destination::missing(kind) {
                return Err(Failure::failed(format!("{} cannot be measured: {why:#}", scenario.name)));
            }
        }
        Ok(())
    }

    /// Where the messages of a scenario go: nothing but to the ledger unless it is that of a sink.
    async fn destination(&self, scenario: &Scenario) -> Result<Option<Box<dyn Destination>>> {
        let Some(kind) = scenario.sink else { return Ok(None) };
        match self.named.get(kind) {
            Some(theirs) => Ok(Some(theirs)),
            None => Ok(Some(destination::open(kind).await?)),
        }
    }
}

async fn all(server: &dyn Server, wanted: Wanted<'_>) -> Result<OnDatabase> {
    let Wanted { scenarios, rounds, .. } = wanted;
    let described = server.describe().await?;
    let steps: usize = scenarios.iter().map(|scenario| sides(scenario).len()).sum();
    let progress = Progress::new(steps as u64 * u64::from(rounds));
    let (mut measured, mut left_out) = (Vec::new(), Vec::new());
    for scenario in scenarios {
        let destination = match wanted.destination(scenario).await {
            Err(error) if !wanted.by_name(scenario) => {
                progress.line(&format!("{} {}: left out", described.database, scenario.name));
                left_out.push(LeftOut { scenario: scenario.name.clone(), why: format!("{error:#}") });
                continue;
            }
            // One that fails does not keep the others from being measured; the whole fails in the end.
            Err(error) => {
                measured.push(OfScenario::new(scenario, None, failed(error)));
                continue;
            }
            Ok(destination) => destination,
        };
        let stage = Stage { server, scenario, destination: destination.as_deref(), sink: None, progress: &progress };
        let ran = measure::run(stage, rounds).await.unwrap_or_else(failed);
        let of = OfScenario::new(scenario, destination.map(|destination| destination.describe()), ran);
        progress.line(&table::line(&described.database, &of));
        measured.push(of);
    }
    Ok(OnDatabase { server: described, scenarios: measured, left_out })
}

fn failed(error: anyhow::Error) -> Ran {
    Ran { broken: vec![format!("it failed: {error:#}")], ..Ran::default() }
}

/// Prints and writes what was found. A broken result is a failure; a slow one is none.
fn tell(report: &Report, options: &Options, colour: Colour) -> Result<ExitCode, Failure> {
    for on in &report.databases {
        table::print(on, colour)?;
    }
    if let Some(file) = &options.json {
        report.write(file)?;
    }
    if let Some(directory) = &options.report {
        markdown::write(report, directory)?;
    }
    let broken = report.broken();
    match broken.is_empty() {
        true => {
            let left_out = match report.left_out() {
                0 => String::new(),
                1 => "; 1 scenario was left out".to_owned(),
                some => format!("; {some} scenarios were left out"),
            };
            crate::output::line(&format!(
                "every message arrived once, and in order where order was asked for{left_out}"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        false => Err(Failure::failed(format!("the result is broken\n  {}", broken.join("\n  ")))),
    }
}
