//! How an outbox table looks: which columns it has, what its words mean, how its rows are claimed.
//!
//! A layout is a plain description. All statements of a store are rendered from it once, when the store is opened; nothing is
//! decided per message. Postrider's own table is one of them ([`Layout::postrider`]) and goes the same way as a table that
//! was there before Postrider came. What a table cannot do follows from its description ([`Layout::can`]), and a
//! description that makes no sense is refused with the missing column named ([`Layout::check`]).

mod capability;
mod check;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) mod dialect;
mod fit;
mod form;
pub mod guess;
mod presets;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod rights;
pub mod table;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod verdict;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use capability::Ability;
pub use check::LayoutError;
#[cfg(feature = "postgres")]
pub(crate) use presets::{AGGREGATE_TYPES, EVENT_TYPES};
pub use presets::{PRESETS, about, preset};

use crate::names::Names;

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, exactly as the database has it.
    pub name: String,
    /// Its type, where it is not the usual one for its purpose: an enum or a UUID that holds a text.
    pub kind: Option<String>,
    /// The words that an enum knows, so that another one is refused before SQL.
    pub values: Vec<String>,
    /// The most characters it takes, so that a longer text is refused before SQL.
    pub max_length: Option<u32>,
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), kind: None, values: Vec::new(), max_length: None }
    }
}

impl Column {
    /// A column of a type that is not the usual one for its purpose.
    pub fn typed(name: &str, kind: &str) -> Self {
        Self { kind: Some(kind.to_owned()), ..Self::from(name) }
    }

    /// A column of text that takes so many characters.
    pub fn up_to(name: &str, max_length: u32) -> Self {
        Self { max_length: Some(max_length), ..Self::from(name) }
    }

    /// A column of an enum with these words.
    pub fn one_of(name: &str, kind: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Self { values, ..Self::typed(name, kind) }
    }
}

/// A text that is in a column, or the same for every row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Text {
    Fixed { fixed: String },
    Column(Column),
}

impl Text {
    /// The column, if it is one.
    pub fn column(&self) -> Option<&Column> {
        match self {
            Self::Column(column) => Some(column),
            Self::Fixed { .. } => None,
        }
    }
}

/// What kind of id rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdKind {
    /// A UUID: the event id on every wire.
    #[default]
    Uuid,
    /// A whole number. The event id is a UUID of version 8 made of the names of database, schema and table and the number, the same on every attempt.
    Integer,
}

/// What kind of payload rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PayloadKind {
    /// `jsonb` or `json`.
    #[default]
    Json,
    /// Text that is JSON.
    Text,
    /// Bytes, delivered as they are.
    Bytes,
}

/// The words of a status column.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// A row that waits, as producers write it.
    pub pending: String,
    /// A row that waits after a failed attempt, if that has a word of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// A row under a lease.
    pub processing: String,
    /// A delivered row.
    pub delivered: String,
    /// A row that was given up.
    pub dead: String,
}

/// How rows are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimBy {
    /// A lease that says until when (`locked_until`).
    Lease,
    /// A time at which the row was locked (`locked_at`); the lease is over `lock_timeout` later.
    LockTimeout,
    /// A row lock, held in an open transaction while the message is published.
    RowLock,
}

/// What attempts count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// Every claim, as our own table does.
    #[default]
    Claims,
    /// Failures only: a claim counts at once, so that a message which kills its worker is given up in the end, and a
    /// delivery takes its attempt back. With a row lock nothing can be written at the claim, and a crash does not count.
    Failures,
}

/// Which rows get shares of their own in a fair claim; says that the table has an index for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Lanes {
    /// Namespace, topic and tenant: `(namespace, topic, coalesce(tenant, nil), due, seq)`.
    Topics,
    /// Tenant: `(tenant, status, due)`.
    Tenants,
}

/// A description of an outbox table. Columns that are not named are not there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// What it is called, in errors and in the configuration.
    #[serde(skip)]
    pub name: Cow<'static, str>,
    /// Where the table is.
    #[serde(skip)]
    pub names: Names,

    /// The primary key.
    pub id: Column,
    /// What kind of id it is.
    #[serde(default)]
    pub id_kind: IdKind,
    /// Where ids are whole numbers: tells the event ids of this table from those of one with the same names in a database of the same name on another server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_salt: Option<String>,
    /// The namespace.
    pub namespace: Text,
    /// The topic.
    pub topic: Text,
    /// The ordering and partition key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Column>,
    /// Whether rows must have a key.
    #[serde(default)]
    pub key_required: bool,
    /// The tenant, a UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Column>,
    /// Whether rows must have a tenant.
    #[serde(default)]
    pub tenant_required: bool,
    /// The producer's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<Column>,
    /// Whether rows must have an idempotency key; a message without one gets its id.
    #[serde(default)]
    pub dedupe_required: bool,
    /// The payload.
    pub payload: Column,
    /// What kind of payload it is.
    #[serde(default)]
    pub payload_kind: PayloadKind,
    /// Payloads that are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<Column>,
    /// Headers, a JSON object of strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Column>,
    /// Further columns that travel as headers, by the header's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Column>,

    /// The status column. Without one a row is delivered once `delivered_at` is set, or once it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Column>,
    /// What the words of the status column are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Words>,
    /// Whether a row that is given up is marked as failed first, where the owner's state machine wants it.
    #[serde(default)]
    pub dead_after_failed: bool,

    /// How rows are claimed.
    pub claim: ClaimBy,
    /// The worker that has the lease, a UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<Column>,
    /// When the lease is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<Column>,
    /// When the row was locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_at: Option<Column>,
    /// How long a lock counts that says when it was taken, and how long a row lock is held at most.
    #[serde(default = "five_minutes", with = "form::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("format" = "duration")))]
    pub lock_timeout: Duration,
    /// The most rows of one claim, where they are locked while they are published.
    #[serde(default = "fifty")]
    pub batch: u32,

    /// How often the row was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Column>,
    /// What attempts count.
    #[serde(default)]
    pub counts: Counts,
    /// The attempts allowed to the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Column>,
    /// What a message without a number of its own gets there, where the column must have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_max_attempts: Option<u32>,
    /// The attempts after which a row is dead, where no word says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up_after: Option<u32>,
    /// When the row is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Column>,
    /// The order in which rows were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Column>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Column>,
    /// How many characters of an error are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_limit: Option<u32>,
    /// When the row was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Column>,
    /// When the row was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Column>,
    /// When the row was claimed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Column>,
    /// When the message was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Column>,

    /// Which rows get shares of their own in a fair claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Lanes>,
    /// Whether the table has our indexes on due rows by namespace and on open rows by key, so that namespaces share claims and
    /// messages can be delivered in order per key.
    #[serde(default)]
    pub indexed_like_ours: bool,
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

fn fifty() -> u32 {
    50
}

impl Default for Layout {
    fn default() -> Self {
        Self::postrider(Names::default())
    }
}

impl Layout {
    /// The least that a table can have: an id, a payload, and where its messages go. Rows are claimed with a row lock and
    /// deleted once they are delivered.
    pub fn bare(name: impl Into<Cow<'static, str>>, names: Names, id: &str, payload: &str) -> Self {
        let table = names.table().to_owned();
        Self {
            name: name.into(),
            names,
            id: id.into(),
            id_kind: IdKind::Uuid,
            id_salt: None,
            namespace: Text::Fixed { fixed: table.clone() },
            topic: Text::Fixed { fixed: table },
            key: None,
            key_required: false,
            tenant: None,
            tenant_required: false,
            dedupe_key: None,
            dedupe_required: false,
            payload: payload.into(),
            payload_kind: PayloadKind::Json,
            payload_bytes: None,
            headers: None,
            fields: BTreeMap::new(),
            status: None,
            words: None,
            dead_after_failed: false,
            claim: ClaimBy::RowLock,
            locked_by: None,
            locked_until: None,
            locked_at: None,
            lock_timeout: five_minutes(),
            batch: fifty(),
            attempts: None,
            counts: Counts::Claims,
            max_attempts: None,
            usual_max_attempts: None,
            give_up_after: None,
            next_attempt_at: None,
            seq: None,
            last_error: None,
            last_error_limit: None,
            created_at: None,
            updated_at: None,
            last_attempt_at: None,
            delivered_at: None,
            lanes: None,
            indexed_like_ours: false,
        }
    }

    /// The same layout with other names.
    pub fn named(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Whether this is Postrider's own table.
    pub fn is_ours(&self) -> bool {
        self.name == presets::POSTRIDER
    }

    /// Whether the due time is part of the fence. Where a row does not say who has it, its attempt's number is the fence; after a replay
    /// numbers begin anew, and so an old claim of the same number must be told from a new one. A claim and its renewals leave the
    /// due time as it is, and a replay sets it.
    pub(crate) fn goes_by_turns(&self) -> bool {
        self.claim != ClaimBy::RowLock && self.locked_by.is_none()
    }

    /// Whether delivered rows can stay; otherwise they are deleted.
    pub fn keeps_delivered(&self) -> bool {
        self.status.is_some() || self.delivered_at.is_some()
    }
}
