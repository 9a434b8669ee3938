//! The operator's verbs: count, look, replay, discard, examine.
//!
//! A dispatcher needs none of them. What changes messages is written to an audit table in the same transaction: who,
//! when, what was asked for, and which messages it was done to.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

use crate::state::State;
use crate::store::{Headers, Payload, Purge, Scope, Store, StoreError};

/// The header that a replayed message carries from then on: how often it was replayed.
pub const REPLAYED: &str = "postrider-replayed";

/// The most messages that one replay or discard changes, and one page lists.
pub const LARGEST_CHANGE: u32 = 1_000;

/// Which dead messages are meant. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of these namespaces, and of this tenant.
    pub scope: Scope,
    /// Of this topic.
    pub topic: Option<String>,
    /// Of this key.
    pub key: Option<String>,
    /// With these ids.
    pub ids: Option<Vec<Uuid>>,
    /// That died at this time or later, in microseconds since 1970.
    pub since_micros: Option<i64>,
    /// That died before this time, in microseconds since 1970.
    pub until_micros: Option<i64>,
    /// Whose `last_error` contains this text, capital letters or not.
    pub error: Option<String>,
}

/// A change to make to dead messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Who asks for it, for the audit table.
    pub who: String,
    /// Which messages.
    pub filter: Filter,
    /// The most messages in this call, those that died first; never more than [`LARGEST_CHANGE`].
    pub limit: u32,
}

/// Where a list of dead messages goes on: after this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// When the message died, in microseconds since 1970.
    pub updated_at_micros: i64,
    /// Its id.
    pub id: Uuid,
}

/// A row as it is, in any state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the columns of `outbox_messages`
pub struct Record {
    pub id: Uuid,
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub state: State,
    pub attempts: i32,
    pub max_attempts: Option<i32>,
    pub last_error: Option<String>,
    pub headers: Headers,
    /// The payload, if one message was asked for; a list has none.
    pub payload: Option<Payload>,
    pub next_attempt_at_micros: i64,
    pub locked_by: Option<Uuid>,
    pub locked_until_micros: Option<i64>,
    pub created_at_micros: i64,
    pub updated_at_micros: i64,
    pub delivered_at_micros: Option<i64>,
}

impl Record {
    /// Where a list goes on after it.
    pub fn position(&self) -> Position {
        Position { updated_at_micros: self.updated_at_micros, id: self.id }
    }
}

/// How many messages of a topic are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The namespace.
    pub namespace: String,
    /// The topic.
    pub topic: String,
    /// The state.
    pub state: State,
    /// The messages in that state.
    pub messages: u64,
    /// Those of them that came into the state in the last minute; of pending ones, those that were enqueued then.
    pub last_minute: u64,
    /// Of pending messages, those whose time has come.
    pub due: u64,
    /// How long ago the oldest of them came into the state; of pending messages, for how long the oldest due one has
    /// been due.
    pub oldest: Duration,
}

/// What an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Action {
    Replay,
    Discard,
    Purge,
}

impl Action {
    /// Its word in the audit table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
            Self::Purge => "purge",
        }
    }
}

/// A line of the audit table: one for each call that changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number; a later line has a higher one.
    pub seq: i64,
    /// When, in microseconds since 1970, on the database's clock.
    pub at_micros: i64,
    /// Who asked for it.
    pub who: String,
    /// What was done.
    pub action: String,
    /// What was asked for, as JSON.
    pub asked: String,
    /// How many messages were changed.
    pub messages: u64,
    /// Which; a purge names none.
    pub ids: Vec<Uuid>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Looked at and in order; or not looked at, see [`Finding::is_examined`].
    Fine,
    /// It works, but will be slow, fragile or surprising.
    Warning,
    /// It does not work, or a promise does not hold.
    Problem,
}

/// Something that a store's `examine` looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name, such as `clock-skew`.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What to do about it; nothing where all is in order.
    pub fix: Option<String>,
}

/// What a finding says first when nothing was looked at.
const NOT_EXAMINED: &str = "not examined: ";

impl Finding {
    /// All is in order.
    pub fn fine(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, severity: Severity::Fine, what: what.into(), fix: None }
    }

    /// It could not be looked at, and why. No warning: many checks are for roles that may see more.
    pub fn not_examined(name: &'static str, why: impl fmt::Display) -> Self {
        Self::fine(name, format!("{NOT_EXAMINED}{why}"))
    }

    /// Whether it was looked at. What was not is neither fine nor wrong.
    pub fn is_examined(&self) -> bool {
        !self.what.starts_with(NOT_EXAMINED)
    }

    /// It works, but not well.
    pub fn warning(name: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, severity: Severity::Warning, what: what.into(), fix: Some(fix.into()) }
    }

    /// It does not work.
    pub fn problem(name: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, severity: Severity::Problem, what: what.into(), fix: Some(fix.into()) }
    }
}

/// One line for people.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

/// A store as its operator sees it.
#[async_trait]
pub trait Operator: Store {
    /// Counts messages by namespace, topic and state. Delivered ones take time to count where there are many, so they
    /// can be left out.
    async fn overview(&self, scope: &Scope, delivered: bool) -> Result<Vec<Tally>, StoreError>;

    /// A page of dead messages without their payloads, those that died first before the others, after a position; at
    /// most [`LARGEST_CHANGE`].
    async fn dead(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// How many dead messages there are.
    async fn count_dead(&self, filter: &Filter) -> Result<u64, StoreError>;

    /// A message in any state, with its payload.
    async fn message(&self, id: Uuid) -> Result<Option<Record>, StoreError>;

    /// Puts dead messages back to pending, due now, with all their attempts and one more in the header [`REPLAYED`];
    /// answers which.
    async fn replay(&self, change: &Change) -> Result<Vec<Uuid>, StoreError>;

    /// Deletes dead messages; answers which.
    async fn discard(&self, change: &Change) -> Result<Vec<Uuid>, StoreError>;

    /// [`Store::purge`] by an operator's hand, noted in the audit table.
    async fn purge_as(&self, who: &str, purge: &Purge) -> Result<u64, StoreError>;

    /// How many rows [`Store::purge`] would delete, its limit apart.
    async fn count_purge(&self, purge: &Purge) -> Result<u64, StoreError>;

    /// The latest lines of the audit table, the newest first; never more than [`LARGEST_CHANGE`].
    async fn audit(&self, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        self.audit_before(None, limit).await
    }

    /// The lines of the audit table before the one with this number, the newest first: the next page.
    async fn audit_before(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, StoreError>;
}
