//! `postrider`: a relay that delivers the messages of an outbox, and the operator's tool.

mod args;
#[cfg(feature = "bench")]
mod bench;
mod commands;
mod config;
mod demo;
mod exit;
mod output;
mod relay;
mod target;
mod tenants;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    // Two providers are linked; without a choice rustls would panic at the first handshake.
    let _chosen_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&Failure::failed(format!("the runtime cannot be started: {error}"))),
    };
    let done = runtime.block_on(carry_out(arguments));
    // A task that blocks its thread must not keep the process.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(failure) => exit::report(&failure),
    }
}

async fn carry_out(arguments: Arguments) -> Result<ExitCode, Failure> {
    let colour = arguments.colour;
    match arguments.command {
        Command::Run(run) => relay::run(run, colour).await,
        Command::Migrate(migrate) => commands::migrate::run(migrate).await,
        Command::Enqueue(enqueue) => commands::enqueue::run(enqueue).await,
        Command::Status(status) => commands::status::run(status, colour).await,
        Command::Dead(dead) => commands::dead::run(dead, colour).await,
        Command::Purge(purge) => commands::purge::run(purge).await,
        Command::Changelog(changelog) => commands::changelog::run(changelog, colour).await,
        Command::Audit(audit) => commands::audit::run(audit, colour).await,
        Command::Doctor(doctor) => commands::doctor::run(doctor, colour).await,
        Command::Health(health) => commands::health::run(health).await,
        Command::Layout(layout) => commands::layout::run(layout, colour).await,
        Command::Config(config) => commands::config::run(&config),
        Command::Demo(demo) => demo::run(&demo).await.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => bench::run(bench, colour).await,
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { directory } => commands::manual::pages(directory.as_deref()),
    }
}
