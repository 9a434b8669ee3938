//! How a dispatcher works, checked once when it is built.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::limit::TenantLimits;
use super::{Dispatcher, Pulse};
use crate::breaker::BreakerConfig;
use crate::retry::{ExponentialBackoff, Randomness, RetryPolicy, system_randomness};
use crate::sink::Sink;
use crate::store::{Delivered, LARGEST_CLAIM, Order, Scope, Store};

/// The name in metrics and logs.
pub const DEFAULT_NAME: &str = "postrider";
/// Rows per claim.
pub const DEFAULT_BATCH_SIZE: u32 = 500;
/// Publish calls under way at the same time.
pub const DEFAULT_CONCURRENCY: usize = 64;
/// Bytes claimed and not settled.
pub const DEFAULT_MAX_BYTES: usize = 64 * 1024 * 1024;
/// How long a claim lasts.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// How often to look without having been woken.
pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long one publish may take.
pub const DEFAULT_PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts, the first included.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 10;
/// The longest wait a sink may ask for.
pub const DEFAULT_LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// How long a shutdown waits for publishes under way.
pub const DEFAULT_SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// With the label `tenant` in metrics, how many tenants have a value of their own.
pub const DEFAULT_TENANTS_IN_METRICS: usize = 1_000;

/// The checked configuration of a dispatcher, immutable while it runs.
#[derive(Clone)]
pub(super) struct Config {
    pub name: String,
    pub scope: Scope,
    pub order: Order,
    pub worker: Uuid,
    pub batch_size: u32,
    pub max_rows: usize,
    pub max_bytes: usize,
    pub concurrency: usize,
    pub lease: Duration,
    pub poll_interval: Duration,
    pub publish_timeout: Duration,
    pub store_timeout: Duration,
    pub max_attempts: i32,
    pub retry: Arc<dyn RetryPolicy>,
    pub randomness: Randomness,
    pub longest_retry_after: Duration,
    pub breaker: BreakerConfig,
    pub delivered: Delivered,
    pub keep_delivered: Option<Duration>,
    pub keep_dead: Option<Duration>,
    pub sweep_interval: Duration,
    pub shutdown_grace: Duration,
    pub tenant_limits: TenantLimits,
    pub tenant_metrics: Option<usize>,
}

/// Builds a [`Dispatcher`]. Every setting has a default; [`build`](Self::build) checks them together.
#[must_use]
pub struct DispatcherBuilder {
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    config: Config,
    max_rows: Option<usize>,
    store_timeout: Option<Duration>,
    sweep_interval: Option<Duration>,
    max_attempts: u32,
    backoff: Option<ExponentialBackoff>,
}

impl DispatcherBuilder {
    pub(super) fn new(store: Arc<dyn Store>, sink: Arc<dyn Sink>) -> Self {
        let backoff = ExponentialBackoff::default();
        let config = Config {
            name: DEFAULT_NAME.into(),
            scope: Scope::all(),
            order: Order::None,
            worker: Uuid::now_v7(),
            batch_size: DEFAULT_BATCH_SIZE,
            max_rows: 0,
            max_bytes: DEFAULT_MAX_BYTES,
            concurrency: DEFAULT_CONCURRENCY,
            lease: DEFAULT_LEASE,
            poll_interval: DEFAULT_POLL_INTERVAL,
            publish_timeout: DEFAULT_PUBLISH_TIMEOUT,
            store_timeout: Duration::ZERO,
            max_attempts: 0,
            retry: Arc::new(backoff),
            randomness: system_randomness(),
            longest_retry_after: DEFAULT_LONGEST_RETRY_AFTER,
            breaker: BreakerConfig::default(),
            delivered: Delivered::Keep,
            keep_delivered: None,
            keep_dead: None,
            sweep_interval: Duration::ZERO,
            shutdown_grace: DEFAULT_SHUTDOWN_GRACE,
            tenant_limits: TenantLimits::default(),
            tenant_metrics: None,
        };
        Self {
            store,
            sink,
            config,
            max_rows: None,
            store_timeout: None,
            sweep_interval: None,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            backoff: Some(backoff),
        }
    }

    /// The name in metrics and logs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Whose messages it takes; all of them unless this is said.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.config.scope = scope;
        self
    }

    /// Which messages wait for which others; none for any other unless this is said.
    ///
    /// With [`Order::Key`] messages with a key go out one after the other within their namespace and key. That is the
    /// order in which they were written, if whoever writes messages of one key does so one at a time: the transaction
    /// locks what the key stands for before it enqueues. All dispatchers that share these messages must say the same.
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// Its id in `locked_by`; a fresh one unless this is said. Two dispatchers must not share one.
    pub fn worker_id(mut self, id: Uuid) -> Self {
        self.config.worker = id;
        self
    }

    /// Rows per claim ([`DEFAULT_BATCH_SIZE`]).
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// Rows claimed and not settled; four batches unless this is said.
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.max_rows = Some(rows);
        self
    }

    /// Bytes claimed and not settled ([`DEFAULT_MAX_BYTES`]).
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.config.max_bytes = bytes;
        self
    }

    /// Publish calls under way at the same time ([`DEFAULT_CONCURRENCY`]).
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.config.concurrency = calls;
        self
    }

    /// How long a claim lasts unless it is renewed ([`DEFAULT_LEASE`]).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often to look for messages without having been woken ([`DEFAULT_POLL_INTERVAL`]); at most a third
    /// of the lease.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// How long one publish may take before its outcome counts as unknown ([`DEFAULT_PUBLISH_TIMEOUT`]).
    /// It may be longer than the lease, which is renewed meanwhile.
    pub fn publish_timeout(mut self, limit: Duration) -> Self {
        self.config.publish_timeout = limit;
        self
    }

    /// How long one statement may take; ten seconds or a third of the lease, whichever is shorter, unless
    /// this is said.
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.store_timeout = Some(limit);
        self
    }

    /// Attempts allowed to messages without a number of their own ([`DEFAULT_MAX_ATTEMPTS`]).
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// The bounds of the exponential backoff between attempts.
    pub fn backoff(mut self, base_delay: Duration, max_delay: Duration) -> Self {
        let backoff = ExponentialBackoff { base_delay, max_delay };
        self.config.retry = Arc::new(backoff);
        self.backoff = Some(backoff);
        self
    }

    /// Another retry policy.
    pub fn retry_policy(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.config.retry = Arc::new(policy);
        self.backoff = None;
        self
    }

    /// Where the jitter comes from; tests pass their own.
    pub fn randomness(mut self, randomness: Randomness) -> Self {
        self.config.randomness = randomness;
        self
    }

    /// The longest wait that a sink's `Retry-After` is honoured for ([`DEFAULT_LONGEST_RETRY_AFTER`]).
    pub fn longest_retry_after(mut self, limit: Duration) -> Self {
        self.config.longest_retry_after = limit;
        self
    }

    /// When to stop claiming because the sink is down.
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.config.breaker = breaker;
        self
    }

    /// What becomes of delivered rows; they are kept unless this is said.
    pub fn delivered(mut self, delivered: Delivered) -> Self {
        self.config.delivered = delivered;
        self
    }

    /// Deletes delivered rows of this age; never unless this is said.
    pub fn purge_delivered_after(mut self, age: Duration) -> Self {
        self.config.keep_delivered = Some(age);
        self
    }

    /// Deletes dead rows of this age; never unless this is said.
    pub fn purge_dead_after(mut self, age: Duration) -> Self {
        self.config.keep_dead = Some(age);
        self
    }

    /// How often exhausted rows are looked for; half a lease unless this is said.
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.sweep_interval = Some(interval);
        self
    }

    /// How long a shutdown waits for publishes under way ([`DEFAULT_SHUTDOWN_GRACE`]).
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace = grace;
        self
    }

    /// What single tenants may have; nobody is limited unless this is said.
    ///
    /// Messages over a limit spend no attempts and hold up no other tenant. The limits are those of this dispatcher: two of
    /// them let twice as much through.
    pub fn tenant_limits(mut self, limits: TenantLimits) -> Self {
        self.config.tenant_limits = limits;
        self
    }

    /// Adds the label `tenant` to the metrics of publishes, retries, deaths and latencies, with a value of its own for so
    /// many tenants ([`DEFAULT_TENANTS_IN_METRICS`] is a good number) and `other` for the rest. Each tenant is a handful of
    /// time series, so there is no such label unless this is said.
    pub fn tenant_metrics(mut self, most: usize) -> Self {
        self.config.tenant_metrics = Some(most);
        self
    }

    /// Checks the settings together.
    pub fn build(self) -> Result<Dispatcher, ConfigError> {
        let config = self.settled();
        match problems(&config, self.backoff).into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(Dispatcher { store: self.store, sink: self.sink, config, pulse: Pulse::new() }),
        }
    }

    /// Everything that [`build`](Self::build) would refuse; it names only the first.
    pub fn problems(&self) -> Vec<ConfigError> {
        problems(&self.settled(), self.backoff)
    }

    /// The settings, with those that follow from others.
    fn settled(&self) -> Config {
        let lease = self.config.lease;
        Config {
            max_rows: self.max_rows.unwrap_or(self.config.batch_size as usize * 4),
            store_timeout: self.store_timeout.unwrap_or((lease / 3).min(Duration::from_secs(10))),
            sweep_interval: self.sweep_interval.unwrap_or(lease / 2),
            max_attempts: i32::try_from(self.max_attempts).unwrap_or(i32::MAX),
            ..self.config.clone()
        }
    }
}

/// Settings that cannot work, alone or together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("{setting} is {given}; it must be {allowed}")]
    OutOfRange { setting: &'static str, given: String, allowed: &'static str },
    #[error("{low} ({low_value}) must be at most {high} ({high_value}); lower the first or raise the second")]
    Disagree { low: &'static str, low_value: String, high: &'static str, high_value: String },
}

impl ConfigError {
    /// The setting that is wrong; of two that disagree, the one that must be lower.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::OutOfRange { setting, .. } => setting,
            Self::Disagree { low, .. } => low,
        }
    }
}

/// Times beyond this mean nothing, and would overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What is wrong with single settings, or else which of them disagree: two values are compared only if both make sense.
fn problems(config: &Config, backoff: Option<ExponentialBackoff>) -> Vec<ConfigError> {
    let alone = out_of_range(config, backoff);
    if alone.is_empty() { disagreeing(config, backoff) } else { alone }
}

fn out_of_range(config: &Config, backoff: Option<ExponentialBackoff>) -> Vec<ConfigError> {
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));
    let nonzero = Duration::from_millis(1);
    let mut found = vec![
        in_range("batch_size", config.batch_size, 1, LARGEST_CLAIM, "from 1 to 1000"),
        in_range("concurrency", config.concurrency, 1, 100_000, "from 1 to 100000"),
        in_range("max_attempts", config.max_attempts, 1, 1_000, "from 1 to 1000"),
        in_range("max_bytes", config.max_bytes, 1, usize::MAX, "at least 1"),
        in_range("lease", config.lease, short, long, "from 100 ms to 24 h"),
        in_range("shutdown_grace", config.shutdown_grace, Duration::ZERO, LONGEST, "at most 1 year"),
        in_range("breaker.failures", config.breaker.failures, 1, u32::MAX, "at least 1"),
    ];
    let times = [
        ("poll_interval", config.poll_interval),
        ("publish_timeout", config.publish_timeout),
        ("store_timeout", config.store_timeout),
        ("sweep_interval", config.sweep_interval),
        ("breaker.first_pause", config.breaker.first_pause),
        ("breaker.longest_pause", config.breaker.longest_pause),
    ];
    found.extend(times.map(|(setting, given)| in_range(setting, given, nonzero, LONGEST, "from 1 ms to 1 year")));
    if config.scope.tenant.is_some_and(|tenant| tenant.is_nil()) {
        let allowed = "another UUID than the nil one, which stands for no tenant";
        found.push(Err(ConfigError::OutOfRange { setting: "tenant", given: "the nil UUID".into(), allowed }));
    }
    if let Some(most) = config.tenant_metrics {
        found.push(in_range("tenant_metrics", most, 1, 100_000, "from 1 to 100000 tenants"));
    }
    found.extend(config.tenant_limits.problems().into_iter().map(Err));
    if let Some(ExponentialBackoff { base_delay, .. }) = backoff {
        found.push(in_range("backoff base_delay", base_delay, nonzero, Duration::MAX, "at least 1 ms"));
    }
    found.into_iter().filter_map(Result::err).collect()
}

fn disagreeing(config: &Config, backoff: Option<ExponentialBackoff>) -> Vec<ConfigError> {
    let (third, breaker) = (config.lease / 3, config.breaker);
    let mut found = vec![
        at_most("batch_size", config.batch_size as usize, "max_rows", config.max_rows),
        at_most("poll_interval", config.poll_interval, "a third of the lease", third),
        at_most("store_timeout", config.store_timeout, "a third of the lease", third),
        at_most("breaker.first_pause", breaker.first_pause, "breaker.longest_pause", breaker.longest_pause),
    ];
    if let Some(ExponentialBackoff { base_delay, max_delay }) = backoff {
        found.push(at_most("backoff base_delay", base_delay, "backoff max_delay", max_delay));
    }
    found.into_iter().filter_map(Result::err).collect()
}

pub(super) fn in_range<T: PartialOrd + std::fmt::Debug>(
    setting: &'static str,
    given: T,
    least: T,
    most: T,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if given < least || given > most {
        return Err(ConfigError::OutOfRange { setting, given: format!("{given:?}"), allowed });
    }
    Ok(())
}

fn at_most<T: PartialOrd + std::fmt::Debug>(
    low: &'static str,
    low_value: T,
    high: &'static str,
    high_value: T,
) -> Result<(), ConfigError> {
    if low_value > high_value {
        let (low_value, high_value) = (format!("{low_value:?}"), format!("{high_value:?}"));
        return Err(ConfigError::Disagree { low, low_value, high, high_value });
    }
    Ok(())
}
