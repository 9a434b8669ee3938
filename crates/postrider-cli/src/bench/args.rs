//! The command line of `postrider bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use postrider_sinks::setting::Secret;

/// Where addresses may be, so that they are in no command line.
const VARIABLE: &str = "POSTRIDER_BENCH_DATABASE_URL";
/// How often each side is run unless it is said.
const ROUNDS: u32 = 3;
/// The same for a quick run, which is not for figures.
const QUICK_ROUNDS: u32 = 1;

/// `postrider bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the scenarios.
    List {
        /// Print JSON lines, with all parameters.
        #[arg(long)]
        json: bool,
    },
    /// Run scenarios; without a name those that take no gigabytes.
    Run {
        /// Names of scenarios, or patterns such as 'drain-*'; '*' is all of them.
        #[arg(value_name = "SCENARIO")]
        names: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Say what changed from one report to another, beyond noise.
    Compare {
        /// The JSON of a run.
        before: PathBuf,
        /// The JSON of another.
        after: PathBuf,
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// A relay of the benchmark, in a process of its own.
    #[command(hide = true)]
    Relay,
}

/// How to run scenarios.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// A server to measure on, postgres://… or mysql://…, or sqlite:DIRECTORY; may be given several times. On a server a database of its own
    /// is made and dropped again. SQLite in the directory for temporary files unless given. If it holds a password, better by the variable
    /// POSTRIDER_BENCH_DATABASE_URL, which may name several with spaces between.
    #[arg(long, visible_alias = "url", value_name = "URL", value_parser = crate::args::secret)]
    pub database_url: Vec<Secret>,
    /// Sizes that only show that everything works: seconds instead of minutes, and figures that say nothing.
    #[arg(long)]
    pub quick: bool,
    /// How often each side is run, alternating; 3 unless given, 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// Write everything that was measured to this file, for `postrider bench compare` and for programs.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots into this directory.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// A server of yours for the scenario of a sink, instead of one that is started for it; may be given several times: http://…, nats://…,
    /// amqp://…, redis://… or kafka://HOST:PORT, where messages go to postrider.bench, which must be there; or
    /// pubsub=projects/PROJECT/topics/TOPIC, sqs=QUEUE, sns=ARN.
    #[arg(long, value_name = "[TYPE=]ADDRESS")]
    pub sink: Vec<String>,
}

impl Options {
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { QUICK_ROUNDS } else { ROUNDS })
    }

    /// The databases to measure on. The variable that relays read is not asked: it may name a database that people work with.
    pub fn urls(&self) -> Vec<Secret> {
        if !self.database_url.is_empty() {
            return self.database_url.clone();
        }
        let named = std::env::var(VARIABLE).unwrap_or_default();
        let named: Vec<Secret> = named.split_whitespace().map(Secret::new).collect();
        if named.is_empty() { vec![Secret::new("sqlite:")] } else { named }
    }
}
