//! One run of the benchmark: every chosen scenario on every database, and the report.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::Sink;

use super::args::Options;
use super::choice::chosen;
use super::measure::{self, Ran, Stage, sides};
use super::progress::Progress;
use super::report::{OfScenario, OnDatabase, Report, markdown, table};
use super::scenario::Scenario;
use super::server::{self, Server};
use super::sink;
use crate::args::Colour;
use crate::exit::{BY_SIGNAL, Failure};
use crate::relay::signals::Signals;

/// How long dropping a database may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(names: &[String], options: &Options, colour: Colour) -> Result<ExitCode, Failure> {
    let scenarios = chosen(names, options.quick, options.sink.is_some())?;
    let sink = match &options.sink {
        Some(address) => Some(sink::at(address).await?),
        None => None,
    };
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
            measured = all(&*server, &scenarios, sink.as_ref(), options.rounds()) => Ok(measured),
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

async fn all(
    server: &dyn Server,
    scenarios: &[Scenario],
    sink: Option<&Arc<dyn Sink>>,
    rounds: u32,
) -> Result<OnDatabase> {
    let described = server.describe().await?;
    let steps: usize = scenarios.iter().map(|scenario| sides(scenario).len()).sum();
    let progress = Progress::new(steps as u64 * u64::from(rounds));
    let mut measured = Vec::new();
    for scenario in scenarios {
        let stage = Stage { server, scenario, sink, progress: &progress };
        // One that fails does not keep the others from being measured; the whole fails in the end.
        let ran = measure::run(stage, rounds)
            .await
            .unwrap_or_else(|error| Ran { broken: vec![format!("it failed: {error:#}")], ..Ran::default() });
        let of = OfScenario::new(scenario, ran);
        progress.line(&table::line(&described.database, &of));
        measured.push(of);
    }
    Ok(OnDatabase { server: described, scenarios: measured })
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
            crate::output::line("every message arrived once, and in order where order was asked for")?;
            Ok(ExitCode::SUCCESS)
        }
        false => Err(Failure::failed(format!("the result is broken\n  {}", broken.join("\n  ")))),
    }
}
