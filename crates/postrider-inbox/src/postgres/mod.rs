//! The inbox on PostgreSQL 13 and newer.
//!
//! A transaction takes an advisory lock for its event without waiting and inserts the row in one statement; who does not get
//! the lock is told that the event is being handled. The lock is a courtesy: the primary key alone keeps a second effect out,
//! also of programs that take no lock. Under REPEATABLE READ and SERIALIZABLE a row that was committed after the
//! transaction's snapshot is a serialisation failure, [`InboxError::Conflict`](crate::InboxError::Conflict).
//!
//! Leave `synchronous_commit` on: without it a crash of the server undoes the last commits, and messages that were
//! acknowledged after them are lost.

mod error;
mod migrate;
mod run;
mod statements;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

/// An inbox on PostgreSQL.
pub type PostgresInbox = crate::SqlInbox<sqlx::Postgres>;
/// The guard of a [`PostgresInbox`].
pub type PostgresGuard = crate::SqlGuard<sqlx::Postgres>;
