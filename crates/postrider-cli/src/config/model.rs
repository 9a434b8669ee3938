//! What can be configured. The reference in `docs/reference/configuration.md` is made from the comments here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use postrider::ExponentialBackoff;
use postrider::dispatch;
use postrider_changelog::ConsumerConfig;
use postrider_sinks::Format;
use postrider_sinks::setting::{Secret, duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::sink::Sink;

/// The whole configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The relay as a whole.
    pub relay: Relay,
    /// The endpoint for health checks and metrics: `/healthz`, `/readyz` and `/metrics`, and for changelogs that are served.
    pub admin: Admin,
    /// Logs, on standard error.
    pub log: Log,
    /// Traces, sent to an OpenTelemetry collector.
    pub trace: Trace,
    /// Databases with an outbox in them, by a name of your choice.
    pub source: BTreeMap<String, Source>,
    /// Where messages go, by a name of your choice.
    pub sink: BTreeMap<String, Sink>,
    /// Which sink a message goes to. A message takes the first route that matches it; what is not given matches all.
    pub route: Vec<Route>,
}

/// The relay as a whole.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Relay {
    /// How long a stop or a reload waits for publishes under way.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub shutdown_grace: Duration,
}

/// The endpoint for health checks and metrics: `/healthz`, `/readyz` and `/metrics`, and for changelogs that are served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Whether there is one.
    pub enabled: bool,
    /// Where it listens: an IP address and a port. It has no authentication, but for the token
    /// of a changelog: keep it on loopback or behind a network policy.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// `/healthz` is red when a source was not looked at with success for this long.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub stalled_after: Duration,
    /// `/healthz` is red when the oldest due message has been due for this long and none was settled meanwhile, or a
    /// changelog route was held back for this long.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub oldest_due_limit: Duration,
}

/// Logs, on standard error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// For people or for programs.
    pub format: LogFormat,
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,postrider_core=debug`.
    pub level: String,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// Traces, sent to an OpenTelemetry collector.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// The collector's address for OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`. Without one no trace is
    /// sent.
    pub otlp_endpoint: Option<String>,
}

/// A database with an outbox in it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// Whether messages are taken from it.
    pub enabled: bool,
    /// The database: `postgres://…`, `mysql://…` or `sqlite:path`.
    #[schemars(extend("x-needed" = true))]
    pub url: Option<Secret>,
    /// The most connections at a time. PostgreSQL and MySQL want five or more, one more for each changelog route, and two more
    /// for a changelog that is served.
    pub connections: u32,
    /// Whether a pooler in transaction mode (PgBouncer) is between us and PostgreSQL.
    pub behind_pooler: bool,
    /// Whether to bring the schema up to date at start. The role needs the right to do so.
    pub migrate: bool,
    /// The schema of the outbox: `public` on PostgreSQL, the address's database on MySQL, unless given.
    pub schema: Option<String>,
    /// What the names of functions and auxiliary tables begin with.
    pub prefix: String,
    /// The table of messages.
    pub table: String,
    /// Only messages of these namespaces; all unless given.
    pub namespaces: Option<Vec<String>>,
    /// Only messages of this tenant, a UUID; all unless given.
    #[schemars(with = "Option<String>")]
    pub tenant: Option<Uuid>,
    /// Which messages wait for which others. All relays of a source must say the same.
    pub order: Order,
    /// Messages per claim, from 1 to 1000.
    pub batch_size: u32,
    /// Publish calls under way at the same time.
    pub concurrency: usize,
    /// How often to look for messages without having been woken; at most a third of the lease.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub poll_interval: Duration,
    /// How long a claim lasts unless it is renewed. After a crash, messages come again after this time.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub lease: Duration,
    /// How long one publish may take before its outcome counts as unknown.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub publish_timeout: Duration,
    /// Attempts, the first included, for messages without a number of their own. Then a message is dead.
    pub max_attempts: u32,
    /// The delay after the first failed attempt; it doubles with each further one.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub retry_base: Duration,
    /// The longest delay between two attempts.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub retry_max: Duration,
    /// What becomes of delivered messages.
    pub delivered: Delivered,
    /// Delete delivered messages of this age; they are kept for good unless given.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration"))]
    pub keep_delivered: Option<Duration>,
    /// Delete dead messages of this age; they are kept for good unless given.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration"))]
    pub keep_dead: Option<Duration>,
    /// Its changelog: the units of work that were committed, in their order.
    pub changelog: Changelog,
}

/// The changelog of a source: the units of work that were committed, in their order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Changelog {
    /// Whether the relay reads it, for routes with `changelog = true` and for `serve`.
    pub enabled: bool,
    /// Whether its entries can be read at the admin endpoint, at `/changelog/NAME` and `/changelog/NAME/stream`. Their
    /// payloads are then open to whoever reaches it and has the token, if there is one.
    pub serve: bool,
    /// What readers must send as `authorization: Bearer …`. Give one whenever `admin.listen` is not loopback.
    pub token: Option<Secret>,
    /// How often to look for new entries, or for the lease of a relay that is gone; from 10ms to
    /// a third of the lease.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub poll_interval: Duration,
    /// How long the right to deliver for a route lasts unless it is renewed. After a crash another relay takes over after
    /// this time; 1s or more.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub lease: Duration,
}

/// Which messages wait for which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// None for any other: a message that fails is overtaken.
    None,
    /// Messages of a namespace with the same key go out one after the other; what comes after a failing one waits.
    Key,
}

/// What becomes of delivered messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Delivered {
    /// They stay, as long as `keep_delivered` says.
    Keep,
    /// They are deleted at once; those with a dedupe key stay as long as `keep_delivered` says.
    Delete,
}

/// Which sink a message goes to. A message takes the first route that matches it; what is not given matches all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Messages from this source.
    pub source: Option<String>,
    /// Whether it is for the entries of the source's changelog instead of the messages of its outbox. They go out one after
    /// the other; what fails is tried again and holds back what comes after it. Such a route names its source, takes all
    /// entries, and takes none from other routes.
    pub changelog: bool,
    /// Under which name the position of a changelog route is kept in the database; needed for such a route. Under another
    /// name it begins anew.
    pub name: Option<String>,
    /// Messages of namespaces like this: `*` is any text, `?` any character.
    pub namespace: Option<String>,
    /// Messages of topics like this: `*` is any text, `?` any character.
    pub topic: Option<String>,
    /// The sink they go to.
    #[schemars(extend("x-needed" = true))]
    pub sink: String,
    /// The name they have there: a fixed one, `{topic}`, or a template that begins with text of your own, such as
    /// `https://hooks.example.com/{namespace}/{topic}`. Fields are `{namespace}`, `{topic}`, `{key}`, `{tenant}`.
    pub destination: Option<String>,
    /// How they are written there, instead of the sink's own `format`.
    pub format: Option<Format>,
}

impl Default for Relay {
    fn default() -> Self {
        Self { shutdown_grace: dispatch::DEFAULT_SHUTDOWN_GRACE }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            stalled_after: Duration::from_secs(60),
            oldest_due_limit: Duration::from_secs(300),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Pretty, level: "info".into() }
    }
}

impl Default for Source {
    fn default() -> Self {
        let names = postrider::Names::default();
        Self {
            enabled: true,
            url: None,
            connections: 8,
            behind_pooler: false,
            migrate: false,
            schema: None,
            prefix: names.prefix().to_owned(),
            table: names.table().to_owned(),
            namespaces: None,
            tenant: None,
            order: Order::None,
            batch_size: dispatch::DEFAULT_BATCH_SIZE,
            concurrency: dispatch::DEFAULT_CONCURRENCY,
            poll_interval: dispatch::DEFAULT_POLL_INTERVAL,
            lease: dispatch::DEFAULT_LEASE,
            publish_timeout: dispatch::DEFAULT_PUBLISH_TIMEOUT,
            max_attempts: dispatch::DEFAULT_MAX_ATTEMPTS,
            retry_base: ExponentialBackoff::default().base_delay,
            retry_max: ExponentialBackoff::default().max_delay,
            delivered: Delivered::Keep,
            keep_delivered: None,
            keep_dead: None,
            changelog: Changelog::default(),
        }
    }
}

impl Default for Changelog {
    fn default() -> Self {
        let usual = ConsumerConfig::default();
        Self { enabled: false, serve: false, token: None, poll_interval: usual.poll_interval, lease: usual.lease }
    }
}
