//! What can be configured. The reference in `docs/reference/configuration.md` is made from the comments here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use postrider::dispatch;
use postrider::{ExponentialBackoff, Layout};
use postrider_changelog::ConsumerConfig;
use postrider_sinks::Format;
use postrider_sinks::setting::{Secret, duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout::Written;
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
    /// What tables look like that were there before Postrider, by a name of your choice. A column is its name, or
    /// `{ column = "name", type = "…", values = ["…"] }` where its type is an enum or a UUID; what is not named is not
    /// there. `postrider layout guess` proposes one for a table, and `postrider layout show` prints those that are known.
    pub layout: BTreeMap<String, Layout>,
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
    /// What its table looks like: `postrider`, another layout that is known (`postrider layout list`), or the name of a
    /// `[layout.NAME]`.
    pub layout: String,
    /// The schema of the outbox: `public` on PostgreSQL, the address's database on MySQL, unless given.
    pub schema: Option<String>,
    /// What the names of functions and auxiliary tables begin with; with another layout `postrider_NAME_` unless given.
    pub prefix: String,
    /// The table of messages; with another layout that is known its own unless given, and needed with a `[layout.NAME]`.
    pub table: String,
    /// How long a lock counts in a table that says since when rows are locked and not until when, and how long rows stay
    /// locked in a table without any such column: instead of the layout's number.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration"))]
    pub lock_timeout: Option<Duration>,
    /// Only messages of these namespaces; all unless given.
    pub namespaces: Option<Vec<String>>,
    /// Only messages of this tenant, a UUID; all unless given.
    #[schemars(with = "Option<String>")]
    pub tenant: Option<Uuid>,
    /// Which messages wait for which others. All relays of a source must say the same.
    pub order: Order,
    /// Messages per claim, from 1 to 1000. Where rows are locked while they are published, at most the layout's `batch`,
    /// which it is unless given.
    pub batch_size: u32,
    /// Publish calls under way at the same time.
    pub concurrency: usize,
    /// How often to look for messages without having been woken; at most a third of the lease.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub poll_interval: Duration,
    /// How long a claim lasts unless it is renewed. After a crash, messages come again after this time. Where the layout
    /// has a `lock_timeout`, at most that long, which it is unless given.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub lease: Duration,
    /// How long one publish may take before its outcome counts as unknown.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub publish_timeout: Duration,
    /// Attempts, the first included, for messages without a number of their own. Then a message is dead. Where the layout
    /// has a `give_up_after`, it is that.
    pub max_attempts: u32,
    /// The delay after the first failed attempt; it doubles with each further one.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub retry_base: Duration,
    /// The longest delay between two attempts.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub retry_max: Duration,
    /// What becomes of delivered messages; deleted, where the layout has nothing that says that they were.
    pub delivered: Delivered,
    /// Delete delivered messages of this age; they are kept for good unless given.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration"))]
    pub keep_delivered: Option<Duration>,
    /// Delete dead messages of this age; they are kept for good unless given.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration"))]
    pub keep_dead: Option<Duration>,
    /// Whether metrics of publishes, retries, deaths and latencies have the label `tenant`. Each tenant is a few dozen time
    /// series.
    pub tenant_metrics: bool,
    /// With `tenant_metrics`, how many tenants have a value of their own; the rest are `other`.
    pub tenant_metrics_max: usize,
    /// What each tenant may have; not limited unless given. Messages without a tenant are never limited.
    pub tenant_limits: TenantLimits,
    /// Its changelog: the units of work that were committed, in their order.
    pub changelog: Changelog,
    /// How its tenants are kept apart, on PostgreSQL.
    pub tenants: Tenants,
    /// What `layout`, `schema`, `prefix`, `table` and `lock_timeout` come to.
    #[serde(skip)]
    pub described: Layout,
    /// Which of its keys are not there by default.
    #[serde(skip)]
    pub written: Written,
}

/// What each tenant may have. The limits are those of one relay: two relays of a source let twice as much through.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Messages per second.
    pub rate: Option<u32>,
    /// Messages at once after a time without any; as many as `rate` unless given.
    pub burst: Option<u32>,
    /// Messages that are published at the same time.
    pub in_flight: Option<u32>,
    /// Other limits for single tenants, by their UUIDs. What is not given there is as for the others.
    pub tenants: BTreeMap<String, TenantLimit>,
}

/// What one tenant may have.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimit {
    /// Messages per second of this tenant.
    pub rate: Option<u32>,
    /// Messages of this tenant at once after a time without any; as many as `rate` unless given.
    pub burst: Option<u32>,
    /// Messages of this tenant that are published at the same time.
    pub in_flight: Option<u32>,
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

/// How the tenants of a source are kept apart, on PostgreSQL.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tenants {
    /// Whether `run` and `doctor` see to it that row-level security confines the application to one tenant.
    /// `postrider migrate --row-level-security` switches it on.
    pub row_level_security: RowLevelSecurity,
    /// The role that the application logs in as; needed unless `row_level_security` is off.
    pub application_role: Option<String>,
    /// The setting that says whose a transaction is: two names with a dot between.
    pub setting: String,
}

/// Whether row-level security must confine the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowLevelSecurity {
    /// Nobody looks.
    Off,
    /// What is wrong is logged at the start, and the doctor warns of it.
    Warn,
    /// The relay does not start while something is wrong, and the doctor fails.
    Require,
}

/// Which messages wait for which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// None for any other: a message that fails is overtaken.
    None,
    /// Messages of a namespace and a tenant with the same key go out one after the other; what comes after a failing one waits.
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
            layout: "postrider".into(),
            schema: None,
            lock_timeout: None,
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
            tenant_metrics: false,
            tenant_metrics_max: dispatch::DEFAULT_TENANTS_IN_METRICS,
            tenant_limits: TenantLimits::default(),
            changelog: Changelog::default(),
            tenants: Tenants::default(),
            described: Layout::default(),
            written: Written::default(),
        }
    }
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            row_level_security: RowLevelSecurity::Off,
            application_role: None,
            setting: postrider::tenant::DEFAULT_SETTING.into(),
        }
    }
}

impl Default for Changelog {
    fn default() -> Self {
        let usual = ConsumerConfig::default();
        Self { enabled: false, serve: false, token: None, poll_interval: usual.poll_interval, lease: usual.lease }
    }
}
