//! Tasks of Postrider's developers, as `cargo xtask TASK`.
//!
//! Exit codes: 0 it passed, 1 something is broken, 2 it could not be run.

mod chaos;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const COULD_NOT_RUN: u8 = 2;

/// Long tasks of Postrider's developers.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Real relays under real faults, and the checkers I1 to I10 at the end.
    Chaos(chaos::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { task: Task::Chaos(arguments) } = Arguments::parse();
    let done = tokio::select! {
        done = chaos::run(arguments) => done,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted; everything that was started is ended")),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(COULD_NOT_RUN)
    })
}
