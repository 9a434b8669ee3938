//! Relay processes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::checker::Bounds;
use testkit::{Signal, Worker};
use uuid::Uuid;

use super::scene::Scene;

const SOON: Duration = Duration::from_secs(120);

/// The settings of a relay process; see `src/bin/relay.rs`.
#[derive(Clone)]
pub struct Settings {
    pub lease_ms: u64,
    pub poll_ms: u64,
    pub dispatchers: usize,
    pub concurrency: usize,
    pub batch: u32,
    pub max_rows: usize,
    pub max_attempts: i32,
    pub grace_ms: u64,
    pub sink: &'static str,
    pub delay_ms: u64,
    /// Where it ends by itself, as `POINT:TIMES`; see `testkit::crash`.
    pub crash_at: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ms: 2_000,
            poll_ms: 100,
            dispatchers: 1,
            concurrency: 8,
            batch: 16,
            max_rows: 32,
            max_attempts: 10,
            grace_ms: 10_000,
            sink: "record",
            delay_ms: 0,
            crash_at: None,
        }
    }
}

impl Settings {
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// What a run of such relays may show, after so many faults that each hit one of their dispatchers.
    pub fn bounds(&self, faults: usize) -> Bounds {
        Bounds {
            duplicates: (faults * self.max_rows) as i64,
            max_attempts: self.max_attempts,
            overdue: Duration::from_millis(2 * self.poll_ms + self.lease_ms / 2),
            told: Vec::new(),
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let crash = self.crash_at.iter().map(|at| ("CRASH_AT", at.clone()));
        let settings = [
            ("LEASE_MS", self.lease_ms.to_string()),
            ("POLL_MS", self.poll_ms.to_string()),
            ("DISPATCHERS", self.dispatchers.to_string()),
            ("CONCURRENCY", self.concurrency.to_string()),
            ("BATCH", self.batch.to_string()),
            ("MAX_ROWS", self.max_rows.to_string()),
            ("MAX_ATTEMPTS", self.max_attempts.to_string()),
            ("GRACE_MS", self.grace_ms.to_string()),
            ("SINK", self.sink.to_owned()),
            ("DELAY_MS", self.delay_ms.to_string()),
        ];
        settings.into_iter().chain(crash).collect()
    }
}

/// A running relay process.
pub struct Relay {
    pub process: Worker,
}

/// How a relay ended that was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    pub code: Option<i32>,
    pub took: Duration,
    pub abandoned: usize,
    pub lease_lost: usize,
}

impl Relay {
    /// Starts a relay and waits until its dispatchers run.
    pub async fn start(scene: &Scene, settings: &Settings) -> Result<Self> {
        let relay = Self::spawn(scene, settings)?;
        relay.process.wait_for_line(|line| line == "ready", SOON).await?;
        Ok(relay)
    }

    /// Starts a relay that may crash at once.
    pub fn spawn(scene: &Scene, settings: &Settings) -> Result<Self> {
        Self::spawn_at(&scene.database.url(), &scene.record.url(), settings)
    }

    /// Starts a relay between an outbox and a record of arrivals; it may crash at once.
    pub fn spawn_at(outbox: &str, record: &str, settings: &Settings) -> Result<Self> {
        let mut environment = settings.environment();
        environment.push(("DATABASE_URL", outbox.to_owned()));
        environment.push(("ARRIVALS_URL", record.to_owned()));
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok(Self { process: Worker::spawn(env!("CARGO_BIN_EXE_relay"), &[], &environment)? })
    }

    /// The id of its dispatcher.
    pub fn worker(&self) -> Result<Uuid> {
        let lines = self.process.lines();
        let line = lines.iter().find_map(|line| line.strip_prefix("worker ")).context("the relay named no worker")?;
        Ok(line.parse()?)
    }

    /// How many lines it printed that begin so.
    pub fn printed(&self, prefix: &str) -> usize {
        self.process.lines().iter().filter(|line| line.starts_with(prefix)).count()
    }

    /// Kills it with SIGKILL and waits for its end.
    pub async fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(SOON).await?;
        Ok(())
    }

    /// Tells it to stop and waits for its end.
    pub async fn terminate(mut self) -> Result<Stopped> {
        let started = Instant::now();
        self.process.signal(Signal::SIGTERM)?;
        let code = self.process.wait(SOON).await?.code();
        let took = started.elapsed();
        let line = self.process.wait_for_line(|line| line.starts_with("stopped"), SOON).await?;
        let number = |name: &str| -> Result<usize> {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok(word.with_context(|| format!("no {name} in `{line}`"))?.parse()?)
        };
        Ok(Stopped { code, took, abandoned: number("abandoned")?, lease_lost: number("lease_lost")? })
    }
}
