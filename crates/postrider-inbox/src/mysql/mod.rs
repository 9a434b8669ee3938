//! The inbox on MariaDB 10.6 and MySQL 8.0.16 and newer.
//!
//! A plain insert: the duplicate key is the answer, and an error undoes the statement only. On MariaDB the statement does not
//! wait for a transaction that has the key; MySQL waits for as long as the session's `innodb_lock_wait_timeout` says. A
//! deadlock undoes the whole transaction and is [`InboxError::Conflict`](crate::InboxError::Conflict); so is a wait that is
//! given up where the server's setting `innodb_rollback_on_timeout` is on. Statements that commit by themselves, such as
//! `create table` and `truncate`, have no place in a handler: with them the effect may happen twice, or not at all.
//!
//! Leave `innodb_flush_log_at_trx_commit` at 1: with another value a crash of the server or its machine undoes the last
//! commits, and messages that were acknowledged after them are lost. A purge runs under READ COMMITTED, which a server
//! with `binlog_format = statement` refuses.

mod error;
mod migrate;
mod run;
mod statements;

/// An inbox on MySQL or MariaDB.
pub type MySqlInbox = crate::SqlInbox<sqlx::MySql>;
/// The guard of a [`MySqlInbox`].
pub type MySqlGuard = crate::SqlGuard<sqlx::MySql>;
