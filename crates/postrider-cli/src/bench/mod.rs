//! `postrider bench`: how fast Postrider is, with the same work done by bare SQL beside it, on databases that you have.
//!
//! Read `scenarios.toml` for what is measured, `measure.rs` for how a scenario is run, `destination.rs` for where messages go that a
//! real sink sends, `ledger.rs` for how every run is checked, and `meter.rs` for what is measured of it. A run fails if a message was lost, repeated or out of order; it never fails for being slow.

pub mod args;
mod bare;
mod choice;
mod compare;
mod destination;
mod ledger;
mod letter;
mod machine;
mod measure;
mod meter;
mod progress;
mod relay;
mod report;
mod scenario;
mod server;
mod session;
mod sink;

use std::process::ExitCode;

use self::args::{Bench, Command};
use self::report::Report;
use crate::args::Colour;
use crate::exit::Failure;
use crate::output;

pub async fn run(bench: Bench, colour: Colour) -> Result<ExitCode, Failure> {
    match bench.command {
        None => session::run(&[], &bench.options, colour).await,
        Some(Command::Run { names, options }) => session::run(&names, &options, colour).await,
        Some(Command::List { json }) => list(json, colour),
        Some(Command::Compare { before, after, json }) => {
            compare::run(&Report::read(&before)?, &Report::read(&after)?, json, colour)
        }
        Some(Command::Relay) => Ok(relay::run().await.map(|()| ExitCode::SUCCESS)?),
    }
}

fn list(as_json: bool, colour: Colour) -> Result<ExitCode, Failure> {
    if as_json {
        scenario::all().iter().try_for_each(output::json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["scenario", "what it does"], output::is_coloured(colour, &std::io::stdout()));
    for scenario in scenario::all() {
        let about = if scenario.long { format!("{} (only if it is named)", scenario.about) } else { scenario.about };
        table.add_row(vec![output::cell(&scenario.name), output::cell(&about)]);
    }
    output::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}
