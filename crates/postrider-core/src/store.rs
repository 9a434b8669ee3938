//! The seam to a database: rows with leases, batch verbs, one answer per message.
//!
//! Every verb is one short statement where the database allows it. Lease decisions use the database's clock
//! only. Every settle is fenced by id, worker and attempt and by `status = 'processing'`; where the fence
//! fails nothing is touched and the answer is [`Settled::LeaseLost`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::doorbell::Doorbell;
use crate::lease::Lease;
use crate::message::CONTENT_TYPE;

/// Which rows a store claims, sweeps and counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// These namespaces, or all of them.
    pub namespaces: Option<Vec<String>>,
    /// This tenant, or all of them and rows without one. The nil UUID is no tenant: a dispatcher refuses it.
    pub tenant: Option<Uuid>,
}

impl Scope {
    /// Every row.
    pub fn all() -> Self {
        Self::default()
    }

    /// The rows of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespaces: Some(vec![namespace.into()]), tenant: None }
    }

    /// Whether a row of this namespace and tenant is meant.
    pub fn contains(&self, namespace: &str, tenant: Option<Uuid>) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
            && self.tenant.is_none_or(|wanted| tenant == Some(wanted))
    }
}

/// A group of rows that gets its own share of a fair claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// The namespace of its rows.
    pub namespace: String,
    /// The topic of its rows.
    pub topic: String,
    /// The tenant of its rows; the nil UUID for rows without one.
    pub tenant: Uuid,
}

/// Which of the eligible rows a claim takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOrder {
    /// Expired leases first, then what has been due for longest.
    Due,
    /// An equal share for each lane (namespace, topic, tenant), going round from after the given lane, so
    /// that one hot lane does not starve the others.
    Fair {
        /// The last lane of the previous round.
        after: Option<Lane>,
    },
    /// Only rows that [`ClaimOrder::Due`] leaves out: a worker died on them [`SUSPECT_AFTER`] times or more,
    /// or on all attempts but the last. Claimed one at a time and published alone, so that a message which
    /// kills its process does not take its neighbours' attempts with it.
    Suspects,
}

/// Which messages wait for which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// None for any other: a message that fails is overtaken.
    #[default]
    None,
    /// Messages of one namespace and tenant with the same key go out in the order of `seq`, whatever their topics. While
    /// one of them waits, is under way or is in backoff, those after it wait; once it is delivered or dead they go on.
    /// Messages without a key wait for none.
    Key,
}

/// With [`Order::Key`], the most messages of one key in a claim.
pub const LONGEST_RUN: u32 = 100;

/// After how many attempts an expired lease makes a row suspect of killing its worker.
pub const SUSPECT_AFTER: i32 = 2;

/// The most rows one claim takes.
pub const LARGEST_CLAIM: u32 = 1_000;

/// A claim to make.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Whose rows.
    pub scope: Scope,
    /// Who claims.
    pub worker: Uuid,
    /// The most rows; never more than [`LARGEST_CLAIM`].
    pub limit: u32,
    /// Stop adding rows once their stored size reaches this; the first row is always taken.
    pub max_bytes: u64,
    /// How long the lease lasts.
    pub lease: Duration,
    /// The attempts allowed to rows without a number of their own.
    pub max_attempts: i32,
    /// Which rows first.
    pub order: ClaimOrder,
    /// Which rows wait for others. With [`Order::Key`] a row with a key is taken only if no earlier one of its key is
    /// pending or processing, or if all of those are taken by this claim too. [`ClaimOrder::Fair`] and
    /// [`ClaimOrder::Suspects`] take one row of a key.
    pub waits: Order,
    /// With [`Order::Key`], the most rows that are taken along with the first ones of their keys, of all keys together.
    pub followers: u32,
    /// With [`Order::Key`], whether a claim in the order [`ClaimOrder::Due`] looks at everything that is due until it has
    /// enough. Otherwise a store may leave it at the rows that have been due for longest, if most of these wait for one that
    /// somebody is publishing: cheap, but whatever comes behind them waits as well.
    pub thorough: bool,
}

/// What a claim took.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The messages, oldest first; with [`Order::Key`] in the order of `seq`.
    pub messages: Vec<ClaimedMessage>,
    /// After a fair claim, where the next one goes on; `None` when it went round and the next begins anew.
    pub last_lane: Option<Lane>,
}

/// A payload as the sink gets it: the same bytes on every attempt.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// JSON text, as the database renders the stored value.
    Json(String),
    /// Bytes exactly as they were enqueued; the content type is in the headers.
    Bytes(Vec<u8>),
}

impl Payload {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Reads a JSON payload as a value.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(self.as_bytes())
    }
}

/// Payloads never reach a log.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, Self::Json(_)) { "json" } else { "bytes" };
        write!(f, "<{kind}, {} bytes>", self.as_bytes().len())
    }
}

/// A message under lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClaimedMessage {
    /// The event id on every wire, the same on every attempt.
    pub id: Uuid,
    /// The producer's namespace.
    pub namespace: String,
    /// The topic within it.
    pub topic: String,
    /// The ordering and partition key.
    pub key: Option<String>,
    /// The tenant, for routing and filtering.
    pub tenant_id: Option<Uuid>,
    /// The producer's idempotency key.
    pub dedupe_key: Option<String>,
    /// What to send.
    pub payload: Payload,
    /// The producer's headers, with its trace context.
    pub headers: Headers,
    /// How often the message has been claimed, this claim included; the fencing token.
    pub attempts: i32,
    /// The attempts allowed to this message, if it has a number of its own.
    pub max_attempts: Option<i32>,
    /// When the producer's transaction began, in microseconds since 1970.
    pub created_at_micros: i64,
    /// How old the message was when it was claimed, on the database's clock.
    pub age: Duration,
    /// The right to publish it.
    pub lease: Lease,
}

/// Headers by lower-case name.
pub type Headers = BTreeMap<String, String>;

/// Namespace, tenant and key of messages that go out in order.
pub(crate) type Line<'a> = (&'a str, Option<Uuid>, &'a str);

impl ClaimedMessage {
    /// A message that a store claimed, with nothing optional; the store fills in the rest.
    pub fn new(lease: Lease, namespace: String, topic: String, payload: Payload) -> Self {
        Self {
            id: lease.id,
            namespace,
            topic,
            key: None,
            tenant_id: None,
            dedupe_key: None,
            payload,
            headers: Headers::new(),
            attempts: lease.attempt,
            max_attempts: None,
            created_at_micros: 0,
            age: Duration::ZERO,
            lease,
        }
    }

    /// The line that the message stands in with [`Order::Key`]: its namespace, tenant and key. Without a key it stands in none.
    pub(crate) fn line(&self) -> Option<Line<'_>> {
        Some((&self.namespace, self.tenant_id, self.key.as_deref()?))
    }

    /// The content type of the payload.
    pub fn content_type(&self) -> &str {
        match (&self.payload, self.headers.get(CONTENT_TYPE)) {
            (_, Some(given)) => given,
            (Payload::Json(_), None) => "application/json",
            (Payload::Bytes(_), None) => "application/octet-stream",
        }
    }

    /// The attempts allowed, given the dispatcher's number.
    pub fn allowed_attempts(&self, default: i32) -> i32 {
        self.max_attempts.unwrap_or(default)
    }

    /// About how much memory the message takes, in bytes.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.payload.as_bytes().len() + headers + 256
    }
}

/// The answer to settling or extending one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is written.
    Done,
    /// The lease was no longer ours; nothing was touched.
    LeaseLost,
}

/// What becomes of rows that are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivered {
    /// They stay with `status = 'delivered'`.
    #[default]
    Keep,
    /// They are deleted at once, except rows with a dedupe key: those stay until they are purged by age,
    /// because a producer's late retry must still find its key.
    Delete,
}

/// A failed attempt to write back.
#[derive(Debug, Clone)]
pub struct Nack {
    /// Which claim.
    pub lease: Lease,
    /// When to try again, from the database's now.
    pub delay: Duration,
    /// What went wrong.
    pub error: String,
}

/// A message to give up.
#[derive(Debug, Clone)]
pub struct Bury {
    /// Which claim.
    pub lease: Lease,
    /// Why.
    pub error: String,
}

/// A claim to give back with its attempt.
#[derive(Debug, Clone)]
pub struct Release {
    /// Which claim.
    pub lease: Lease,
    /// When the row is due again, from the database's now; zero leaves its due time as it was.
    pub delay: Duration,
    /// Why, if there is something to tell the operator.
    pub error: Option<String>,
}

/// The answer to a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// The rows that became dead.
    pub buried: Vec<Uuid>,
    /// Whether rows wait for [`ClaimOrder::Suspects`].
    pub suspects: bool,
}

/// Finished rows to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// Whose rows.
    pub scope: Scope,
    /// Delivered or dead ones.
    pub finished: Finished,
    /// Rows that finished at least this long ago.
    pub older_than: Duration,
    /// The most rows in this call.
    pub limit: u32,
}

/// The two ways for a row to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Finished {
    Delivered,
    Dead,
}

/// How a source is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Rows that wait, due or not.
    pub pending: u64,
    /// Rows that wait although their time has come.
    pub due: u64,
    /// Rows under a lease.
    pub processing: u64,
    /// Rows given up.
    pub dead: u64,
    /// For how long the oldest due row has been due.
    pub oldest_due: Duration,
}

/// What a store's database can do beyond the promises that all stores keep. What is false here has a row in
/// `docs/reference/stores.md` that says what takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// A commit rings for sleeping dispatchers, from any process. Otherwise they poll, and a message waits for up to
    /// a poll interval.
    pub rings: bool,
    /// Several transactions may write at the same time. Otherwise a producer waits until another one's transaction
    /// has ended, and is refused with a retryable error if that takes too long.
    pub parallel_writers: bool,
    /// The database has a clock of its own, which decides on leases. Otherwise all processes must be on one machine,
    /// and its clock does.
    pub server_clock: bool,
    /// [`ClaimOrder::Fair`]: an equal share for each lane. Otherwise what has been due for longest comes first, whoever it is of.
    pub fair: bool,
    /// [`Order::Key`]: messages wait for earlier ones of their key.
    pub order_by_key: bool,
}

/// A database with an outbox in it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What its database can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes eligible rows under a lease.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError>;

    /// Renews leases; answers the renewed lease, or `None` where it was lost.
    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError>;

    /// Marks rows as delivered.
    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError>;

    /// Puts rows back for a later attempt.
    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError>;

    /// Gives rows up.
    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError>;

    /// Gives claims back, and their attempts with them. Never sent twice for one claim (see [`crate::lease`]).
    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError>;

    /// Buries rows whose attempts are spent and whose lease ran out.
    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError>;

    /// Deletes finished rows of a certain age; answers how many. One caller at a time does the work, the
    /// others are answered zero.
    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError>;

    /// Counts what waits, runs and is dead.
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError>;

    /// For how long the oldest transaction that anybody holds open has kept the database from cleaning up after rows that
    /// changed since, as far as it can be seen; zero without one. `None` where a database has no such trouble, or does not tell.
    async fn oldest_xmin_age(&self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }

    /// How long until a row becomes eligible by the passing of time alone; `None` if there is none.
    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError>;

    /// The same without rows that have been due, and leases that have been over, for longer than `since`: who has looked
    /// since then has not found them eligible, because they wait for others of their key.
    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError>;

    /// A bell for one dispatcher.
    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError>;

    /// Wakes other sleeping dispatchers, because there is more than the caller can take.
    async fn ring(&self, scope: &Scope) -> Result<(), StoreError>;
}

/// What kind of failure a store had, and so what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The database cannot be reached, or the connection was lost: try again after a pause.
    Unavailable,
    /// A deadlock or serialisation failure: the transaction may be tried again.
    Conflict,
    /// The schema is missing or of another version: run the migrations.
    Schema,
    /// The row's lease is held by somebody else by now.
    LeaseLost,
    /// Anything else the database refused.
    Refused,
}

impl StoreErrorKind {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Conflict)
    }
}

/// A store's verb failed as a whole.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct StoreError {
    kind: StoreErrorKind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error of a kind; `context` says what happened, to what, and what to do.
    pub fn new(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// Attaches what caused it.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}
