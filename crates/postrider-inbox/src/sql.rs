//! The inbox in the consumer's own database: what PostgreSQL, MySQL and SQLite share.
//!
//! A row is a processed event, and it is written in the transaction that the effect is written in: both are there or
//! neither is, so the effect in that database happens exactly once. Of several transactions with one event the primary key
//! lets one in; the others are told that it is being handled, or wait for it, see [`Meanwhile`]. Whatever fails leaves no
//! row, and the broker brings the message again.

mod database;
mod enter;
mod error;
mod inbox;
mod retain;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod statements;
mod tables;

pub use database::Database;
pub(crate) use database::sealed::Dialect;
pub use enter::ConsumerTransaction;
#[cfg(any(feature = "sea-orm", feature = "tokio-postgres"))]
pub(crate) use enter::{Driver, enter, leave};
pub(crate) use enter::{Entered, Numbers, Value};
pub(crate) use error::{Failed, Kind};
pub use inbox::{SqlGuard, SqlInbox};
pub(crate) use statements::{Statement, Statements, Templates};
pub(crate) use tables::OfEach;
pub use tables::{InboxTables, InboxTablesBuilder, Meanwhile};
