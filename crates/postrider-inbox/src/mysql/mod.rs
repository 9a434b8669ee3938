//! The inbox on MariaDB 10.6 and MySQL 8.0.16 and newer.
//!
//! A plain insert: the duplicate key is the answer, and an error undoes the statement only. On MariaDB the statement does not
//! wait for a transaction that has the key; MySQL waits for as long as the session's `innodb_lock_wait_timeout` says. A
//! deadlock undoes the whole transaction and is [`InboxError::Conflict`](crate::InboxError::Conflict); so, by the server's
//! setting `innodb_rollback_on_timeout`, which is off by default, does a wait that is given up. Statements that commit by
//! themselves, such as `create table`, have no place in a handler.

mod error;
mod migrate;
mod run;
mod statements;

/// An inbox on MySQL or MariaDB.
pub type MySqlInbox = crate::SqlInbox<sqlx::MySql>;
/// The guard of a [`MySqlInbox`].
pub type MySqlGuard = crate::SqlGuard<sqlx::MySql>;
