//! The table `channels` of the configuration file, and its variables: `channels.outbox.max_attempts` is also
//! `VALINOR_CHANNELS_OUTBOX_MAX_ATTEMPTS`. A variable wins over the file.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use postrider::RetryPolicy;
use serde::Deserialize;

/// Settings of the channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `channels.ingress.enabled`: whether webhooks are taken; yes unless it is said.
    pub ingress: bool,
    /// `channels.outbox`.
    pub outbox: OutboxSettings,
}

/// Settings of the worker.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxSettings {
    /// `enabled`: whether the worker runs; as the ingress unless it is said.
    pub enabled: bool,
    /// `poll_interval_seconds`: how often it looks for due replies.
    pub poll_interval: Duration,
    /// `claim_batch_size`: how many it takes at once.
    pub claim_batch_size: u32,
    /// `lock_timeout_seconds`: a reply that has been `sending` for so long belongs to a worker that died.
    pub lock_timeout: Duration,
    /// `max_attempts`: after so many failures a reply is dead.
    pub max_attempts: u32,
    /// `base_retry_seconds`, `jitter_min` and `jitter_max`.
    pub backoff: LightBackoff,
}

/// `base · 2^(attempts - 1)`, at most a hundred times the base, times a factor by chance between the bounds of the jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LightBackoff {
    /// The delay after the first failure, before jitter.
    pub base: Duration,
    /// The least factor.
    pub jitter_min: f64,
    /// The largest factor.
    pub jitter_max: f64,
}

impl RetryPolicy for LightBackoff {
    fn delay(&self, attempts: i32, random: f64) -> Duration {
        let factor = 2_f64.powi(attempts.clamp(1, 30) - 1).min(100.0);
        self.base.mul_f64(factor * (self.jitter_min + (self.jitter_max - self.jitter_min) * random))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct File {
    channels: Channels,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Channels {
    ingress: Ingress,
    outbox: Outbox,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Ingress {
    enabled: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Outbox {
    enabled: Option<bool>,
    poll_interval_seconds: Option<f64>,
    claim_batch_size: Option<u32>,
    lock_timeout_seconds: Option<f64>,
    max_attempts: Option<u32>,
    base_retry_seconds: Option<f64>,
    jitter_min: Option<f64>,
    jitter_max: Option<f64>,
}

impl Settings {
    /// Reads a file, if there is one, and the variables of the process.
    pub fn load(file: Option<&Path>) -> Result<Self> {
        let text = match file {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => String::new(),
        };
        Self::read(&text, |name| std::env::var(name).ok())
    }

    /// Reads the text of a configuration file, and variables from wherever `variable` looks them up.
    pub fn read(file: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let File { channels: Channels { ingress, outbox } } =
            toml::from_str(file).context("the configuration is wrong")?;
        let over = Variables(&variable);
        let ingress = over.or("INGRESS_ENABLED", ingress.enabled, true)?;
        let seconds =
            |name, file, default, most| over.within(name, file, default, 0.01, most).map(Duration::from_secs_f64);
        let backoff = LightBackoff {
            base: seconds("OUTBOX_BASE_RETRY_SECONDS", outbox.base_retry_seconds, 2.0, 3_600.0)?,
            jitter_min: over.within("OUTBOX_JITTER_MIN", outbox.jitter_min, 0.8, 0.0, 10.0)?,
            jitter_max: over.within("OUTBOX_JITTER_MAX", outbox.jitter_max, 1.2, 0.0, 10.0)?,
        };
        ensure!(backoff.jitter_min <= backoff.jitter_max, "channels.outbox.jitter_min is above jitter_max; swap them");
        let outbox = OutboxSettings {
            enabled: over.or("OUTBOX_ENABLED", outbox.enabled, ingress)?,
            poll_interval: seconds("OUTBOX_POLL_INTERVAL_SECONDS", outbox.poll_interval_seconds, 1.0, 3_600.0)?,
            claim_batch_size: over.within("OUTBOX_CLAIM_BATCH_SIZE", outbox.claim_batch_size, 20, 1, 1_000)?,
            lock_timeout: seconds("OUTBOX_LOCK_TIMEOUT_SECONDS", outbox.lock_timeout_seconds, 60.0, 86_400.0)?,
            max_attempts: over.within("OUTBOX_MAX_ATTEMPTS", outbox.max_attempts, 5, 1, 1_000)?,
            backoff,
        };
        let polls = outbox.poll_interval * 3 <= outbox.lock_timeout;
        ensure!(polls, "channels.outbox.poll_interval_seconds must be at most a third of lock_timeout_seconds");
        Ok(Self { ingress, outbox })
    }
}

/// Variables that win over what the file says.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn or<T: FromStr>(&self, name: &str, file: Option<T>, default: T) -> Result<T> {
        let name = format!("VALINOR_CHANNELS_{name}");
        match (self.0)(&name) {
            Some(text) => text.trim().parse().map_err(|_| anyhow!("{name} is {text:?}, which cannot be read")),
            None => Ok(file.unwrap_or(default)),
        }
    }

    fn within<T: FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        file: Option<T>,
        default: T,
        least: T,
        most: T,
    ) -> Result<T> {
        let value = self.or(name, file, default)?;
        let key = name.to_lowercase().replacen('_', ".", 1);
        ensure!(value >= least && value <= most, "channels.{key} is {value}; it must be from {least} to {most}");
        Ok(value)
    }
}
