//! `cargo xtask chaos`: from the command line to a plan, and from its verdict to an exit code.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::chaos::{self, Broker, Fault, Goal, Kind, Plan, Schedule};

/// A run goes on until every limit that was given is reached: --cycles, --messages and --minutes.
#[derive(Args)]
pub struct Arguments {
    /// The database: postgres, mariadb or sqlite.
    #[arg(long, default_value = "postgres")]
    store: Kind,
    /// Where messages go: nats or redis.
    #[arg(long, default_value = "nats")]
    broker: Broker,
    /// What every choice is made by; one of its own, and printed, unless this is given.
    #[arg(long)]
    seed: Option<u64>,
    /// What may go wrong: all, none, or some of kill, freeze, restart, network, sink, rolling, disk with commas between. Unless this is
    /// given it is what a goal says, and otherwise all that the store can have.
    #[arg(long, value_name = "KINDS")]
    faults: Option<String>,
    /// So many faults.
    #[arg(long, visible_alias = "kills", value_name = "N")]
    cycles: Option<usize>,
    /// So many messages, whose commits are confirmed.
    #[arg(long, value_name = "N")]
    messages: Option<usize>,
    /// So many minutes of faults.
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// The sizes of a goal: kills, no-faults, freeze, restarts or rolling. What is given besides wins.
    #[arg(long)]
    goal: Option<Goal>,
    /// The sizes of continuous integration: on PostgreSQL 50 kills and 20,000 messages.
    #[arg(long, conflicts_with = "goal")]
    quick: bool,
    /// Relays at the same time.
    #[arg(long, value_name = "N")]
    relays: Option<usize>,
    /// The binary; the one beside this program unless this is given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The level of the relays' logs, which are searched for secrets.
    #[arg(long, default_value = "trace")]
    log_level: String,
    /// Keeps the relays' logs in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    keep_logs: Option<PathBuf>,
    /// Writes the verdict to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints the first steps of the schedule, and runs nothing.
    #[arg(long, value_name = "N")]
    show: Option<usize>,
}

impl Arguments {
    fn plan(&self) -> Result<Plan> {
        let beside = std::env::current_exe()?.with_file_name("postrider");
        let seed = self.seed.unwrap_or_else(random);
        // relays have working directories of their own
        let binary = std::path::absolute(self.binary.clone().unwrap_or(beside))?;
        let mut plan = Plan::new(binary, self.store, seed);
        plan = match self.goal {
            Some(goal) => plan.goal(goal),
            None if self.quick => plan.short(),
            None => plan,
        };
        plan = match self.faults.as_deref() {
            Some("all") => plan.everything(),
            Some(words) => Plan { faults: faults(words)?, ..plan },
            None if self.goal.is_none() && !self.quick => plan.everything(),
            None => plan,
        };
        plan.broker = self.broker;
        plan.length.cycles = self.cycles.or(plan.length.cycles);
        plan.length.messages = self.messages.or(plan.length.messages);
        plan.length.time = self.minutes.map(|minutes| Duration::from_secs(60 * minutes));
        plan.relays = self.relays.unwrap_or(plan.relays);
        (plan.log_level, plan.keep) = (self.log_level.clone(), self.keep_logs.clone());
        Ok(plan)
    }
}

/// What is named must be possible: nothing of it is left out.
fn faults(text: &str) -> Result<BTreeSet<Fault>> {
    match text {
        "none" => Ok(BTreeSet::new()),
        words => words.split(',').map(|word| word.trim().parse()).collect(),
    }
}

/// Not for anything but a seed.
fn random() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64 % 1_000_000
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let plan = arguments.plan()?;
    for (fault, why) in &plan.left_out {
        eprintln!("LEFT OUT: {}: {why}", fault.word());
    }
    if let Some(steps) = arguments.show {
        Schedule::new(&plan).take(steps).for_each(|step| println!("{step}"));
        return Ok(ExitCode::SUCCESS);
    }
    plan.check()?;
    let words: Vec<&str> = plan.faults.iter().map(|fault| fault.word()).collect();
    let kinds = if words.is_empty() { "none".into() } else { words.join(", ") };
    eprintln!("seed {}, {} on {}, faults: {kinds}", plan.seed, plan.store.word(), plan.broker.word());
    eprintln!("the binary is {}", plan.binary.display());
    let started = Instant::now();
    let tell = |line: &str| eprintln!("{:>6.0} s  {line}", started.elapsed().as_secs_f64());
    let verdict = chaos::run(&plan, &tell).await?;
    println!("{verdict}");
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&verdict.to_json())?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    if !verdict.has_passed() {
        eprintln!("run it again with --seed {}", plan.seed);
    }
    ensure!(verdict.report.messages > 0, "no message was committed, so the run showed nothing");
    Ok(ExitCode::from(u8::from(!verdict.has_passed())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(words: &str) -> Plan {
        let line = Line::parse_from(["chaos"].into_iter().chain(words.split_whitespace()));
        line.arguments.plan().expect("a plan")
    }

    #[test]
    fn a_goal_gives_the_sizes_and_what_is_given_besides_wins() {
        let goal = plan("--goal kills --store mariadb --kills 3 --seed 9 --relays 2");
        assert_eq!((goal.length.cycles, goal.length.messages), (Some(3), Some(100_000)));
        assert_eq!((goal.seed, goal.relays, goal.has(Fault::Kill)), (9, 2, true));
        assert_eq!(plan("--quick").length.messages, Some(20_000));
        assert_eq!(plan("--minutes 2 --faults all").length.time, Some(Duration::from_secs(120)));
    }

    #[test]
    fn all_faults_are_those_that_the_store_can_have_also_if_nothing_is_said() {
        for words in ["--faults all --store", "--minutes 1 --seed 7 --store"] {
            let (postgres, sqlite) = (plan(&format!("{words} postgres")), plan(&format!("{words} sqlite")));
            for fault in Fault::ALL {
                let is_left_out = postgres.left_out.iter().any(|(left_out, _)| left_out == fault);
                assert!(postgres.has(*fault) != is_left_out, "{words}: {}", fault.word());
            }
            assert!(!sqlite.has(Fault::Restart) && sqlite.has(Fault::Network));
        }
        assert_eq!(plan("--quick").faults, BTreeSet::from([Fault::Kill]));
        assert_eq!(plan("--goal freeze").faults, BTreeSet::from([Fault::Freeze]));
    }

    #[test]
    fn what_is_named_is_never_left_out() {
        assert!(plan("--faults none").faults.is_empty());
        let named = plan("--faults kill,disk");
        assert!(named.has(Fault::Disk) && named.left_out.is_empty());
        assert!(faults("kill,fire").is_err());
    }
}
