//! What every changelog can be asked for, whatever database it is in.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{After, ChangelogError, Cursor, Page};

/// How many entries a page has unless something else is said.
pub const DEFAULT_LIMIT: u32 = 100;
/// The most entries that a page has; more is cut down to it.
pub const LARGEST_LIMIT: u32 = 1_000;

/// A changelog to read, and the positions of its named consumers.
///
/// A named consumer has a row in the database: how far it has read, and who holds the lease on it. The lease ends on the
/// database's clock, and each one has a number, its fence; who has lost it changes nothing any more.
#[async_trait]
pub trait Reader: Send + Sync + fmt::Debug {
    /// Entries after a place, at most so many: 0 is [`DEFAULT_LIMIT`], and no more than [`LARGEST_LIMIT`] are given.
    async fn list(&self, after: After, limit: u32) -> Result<Page, ChangelogError>;

    /// The newest entry.
    async fn head(&self) -> Result<Cursor, ChangelogError>;

    /// Takes or takes over the lease on a consumer. `None` if somebody else has it. A consumer that is new begins at
    /// `first`.
    async fn acquire(
        &self,
        consumer: &str,
        owner: Uuid,
        lease: Duration,
        first: After,
    ) -> Result<Option<Lease>, ChangelogError>;

    /// Renews a lease and says how far the consumer has read, if it has read further.
    async fn advance(&self, lease: &Lease, to: Option<&Cursor>, length: Duration) -> Result<(), ChangelogError>;

    /// Notes why the consumer does not get on, for operators to see, and renews its lease.
    async fn hold_back(&self, lease: &Lease, why: &str, length: Duration) -> Result<(), ChangelogError>;

    /// Gives a lease back.
    async fn release(&self, lease: &Lease) -> Result<(), ChangelogError>;

    /// All named consumers, by name.
    async fn consumers(&self) -> Result<Vec<ConsumerState>, ChangelogError>;

    /// Moves a consumer to another place; whoever holds its lease loses it. False if there is no such consumer.
    async fn reset(&self, consumer: &str, to: After) -> Result<bool, ChangelogError>;

    /// Forgets a consumer; whoever holds its lease loses it. False if there is no such consumer.
    async fn forget(&self, consumer: &str) -> Result<bool, ChangelogError>;
}

/// The right to read for a named consumer, until it ends on the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The consumer.
    pub consumer: String,
    /// Who holds it.
    pub owner: Uuid,
    /// Its number: the next lease on the same consumer has a higher one.
    pub fence: i64,
    /// How far the consumer had read when the lease was taken.
    pub cursor: Cursor,
}

/// How a named consumer is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerState {
    /// Its name.
    pub name: String,
    /// How far it has read.
    pub cursor: Cursor,
    /// How many transaction versions it is behind the newest entry.
    pub behind: u128,
    /// Who holds a lease on it that has not ended.
    pub held_by: Option<Uuid>,
    /// Why it does not get on.
    pub last_error: Option<String>,
    /// Since when it does not.
    pub failed_since: Option<SystemTime>,
}
