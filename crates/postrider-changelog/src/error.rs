//! What goes wrong, and what follows from it.

use std::error::Error;

use uuid::Uuid;

use crate::{Cursor, TransactionVersion, Versionstamp};

/// A unit of work was not committed, or the changelog could not answer. Nothing was written, unless the answer to a commit was
/// lost ([`Unavailable`](Self::Unavailable)).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangelogError {
    /// The unit of work, or what was asked for, cannot be done by anybody. Refused before any SQL.
    #[error("{0}")]
    Invalid(String),
    /// A transaction has stamps for 65,536 mutations. Refused before any SQL.
    #[error("a unit of work has {count} mutations, and a transaction has stamps for 65536; split it")]
    TooManyMutations {
        /// How many there are.
        count: usize,
    },
    /// A row has another version than the unit of work expects, or is gone. Read it again and decide anew.
    #[error(
        "{table} {external_id:?} is not at version {version} any more, or is gone; read it again and repeat the unit of work"
    )]
    VersionConflict {
        /// The table, by its user-facing name.
        table: String,
        /// The row.
        external_id: String,
        /// The version that was expected.
        version: i64,
    },
    /// A row that is to be updated or deleted is not there.
    #[error("{table} {external_id:?} is to be changed and is not there")]
    Missing {
        /// The table, by its user-facing name.
        table: String,
        /// The row.
        external_id: String,
    },
    /// A reference points at a row that is not there.
    #[error("column {column} of operation {operation} refers to a row of {table} that is not there")]
    Unresolved {
        /// The operation, counted from zero.
        operation: usize,
        /// The column, by its user-facing name.
        column: String,
        /// The table that it refers to.
        table: String,
    },
    /// A constraint of the application's own tables does not hold.
    #[error("{violation}{}", .constraint.as_ref().map(|name| format!(", says {name}")).unwrap_or_default())]
    Constraint {
        /// What it is about.
        violation: Violation,
        /// Its name, if the database says it.
        constraint: Option<String>,
    },
    /// A unit of work with this id was committed before. Nothing was done again.
    #[error("unit of work {uow_id:?} was committed before; nothing was done again")]
    AlreadyCommitted {
        /// The id.
        uow_id: String,
        /// Its entry.
        versionstamp: Option<Versionstamp>,
    },
    /// The transaction does not have the version any more that it reserved: the reservation was undone by a rollback to a
    /// savepoint, or the transaction was ended by a statement that commits or by an error that was passed over. Nothing was
    /// appended; roll it back.
    #[error("transaction version {version} is not reserved by this transaction any more; roll it back and repeat it")]
    ReservationLost {
        /// The version.
        version: TransactionVersion,
    },
    /// A deadlock, a lock that was not to be had in time, or a serialisation failure, as REPEATABLE READ and SERIALIZABLE give
    /// to whoever came second: repeat the transaction.
    #[error("the database could not serialise this transaction; repeat it")]
    Conflict(#[source] Box<dyn Error + Send + Sync>),
    /// The changelog's tables are missing or differ.
    #[error("the changelog's tables are missing or differ; run postrider migrate, or the migrations of the store")]
    Schema(#[source] Box<dyn Error + Send + Sync>),
    /// The database cannot be reached. If it was a commit, it may have been done; repeat it with the same id to find out.
    #[error("the database cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The database refused a statement.
    #[error("the database refused a statement")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The cursor is of another changelog.
    #[error(
        "the cursor is of changelog {found}, and this one is {store}; begin again, or read where the cursor is from"
    )]
    OtherStore {
        /// The id of this changelog.
        store: Uuid,
        /// The id that the cursor says.
        found: Uuid,
    },
    /// The cursor's entry is not in this changelog: it was restored from a backup, and what was read after it is not what
    /// happened any more.
    #[error(
        "the entry at {} that the cursor points to is not in this changelog; it was restored or cut since, so begin again from an entry that is there",
        .0.versionstamp()
    )]
    LostHistory(Cursor),
    /// The lease on a named consumer was lost to another process.
    #[error("the lease on consumer {consumer:?} was lost; another process has it, or it ran out")]
    LeaseLost {
        /// The consumer.
        consumer: String,
    },
    /// All 80 bits of the transaction version are used up.
    #[error("the changelog has used up its transaction versions")]
    Exhausted,
}

/// What a constraint of a table is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A unique key, or a primary key.
    #[error("a unique key is there already")]
    Unique,
    /// A foreign key.
    #[error("a row that is referred to is missing, or one that refers to it is there")]
    ForeignKey,
    /// A column that cannot be null.
    #[error("a column cannot be null")]
    NotNull,
    /// A check.
    #[error("a check does not hold")]
    Check,
}

impl ChangelogError {
    /// Whether repeating the same thing may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Unavailable(_))
    }
}
