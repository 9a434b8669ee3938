//! The inbox in an SQLite file, SQLite 3.35 and newer.
//!
//! There is one writer at a time, so while one event is handled every other delivery waits for as long as its connection's
//! busy time-out says, and is then told that the event is being handled, whichever that is. Keep handlers short. An event
//! that was processed is found without waiting if the journal mode is WAL. Leave `synchronous` at FULL: with less, a power
//! failure undoes the last commits, and messages that were acknowledged after them are lost.
//!
//! The inbox is in the file that the connection opens, and the effects must be too: a transaction over attached files is not
//! committed as one in WAL. A schema other than `main` is refused.

mod error;
mod migrate;
mod run;
mod statements;

/// An inbox on SQLite.
pub type SqliteInbox = crate::SqlInbox<sqlx::Sqlite>;
/// The guard of a [`SqliteInbox`].
pub type SqliteGuard = crate::SqlGuard<sqlx::Sqlite>;
