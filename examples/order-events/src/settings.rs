//! The team's variables. What is not set has a safe default; what makes no sense is refused by its name.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Settings of the publisher and of consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `PACKFINDERZ_OUTBOX_PUBLISH_BATCH_SIZE`: the most rows that are locked and published at once.
    pub batch_size: u32,
    /// `PACKFINDERZ_OUTBOX_PUBLISH_POLL_MS`: the pause when nothing is to be published.
    pub poll: Duration,
    /// `PACKFINDERZ_OUTBOX_MAX_ATTEMPTS`: a row that failed so often is left alone.
    pub max_attempts: u32,
    /// `PACKFINDERZ_OUTBOX_IDEMPOTENCY_TTL_HOURS`: how long consumers remember an event, 7 to 30 days.
    pub idempotency_ttl: Duration,
}

impl Settings {
    /// Reads the variables of the process.
    pub fn from_env() -> Result<Self> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads them from anywhere.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str, default: u32, bounds: RangeInclusive<u32>| -> Result<u32> {
            let name = format!("PACKFINDERZ_OUTBOX_{name}");
            let Some(text) = variable(&name) else { return Ok(default) };
            let number =
                text.trim().parse().with_context(|| format!("{name} is {text:?}, which is no whole number"))?;
            let (least, most) = (bounds.start(), bounds.end());
            ensure!(bounds.contains(&number), "{name} is {number}; it must be from {least} to {most}");
            Ok(number)
        };
        Ok(Self {
            batch_size: number("PUBLISH_BATCH_SIZE", 50, 1..=1_000)?,
            poll: Duration::from_millis(number("PUBLISH_POLL_MS", 500, 1..=10_000)?.into()),
            max_attempts: number("MAX_ATTEMPTS", 10, 1..=1_000)?,
            idempotency_ttl: Duration::from_secs(3_600 * u64::from(number("IDEMPOTENCY_TTL_HOURS", 168, 168..=720)?)),
        })
    }
}
