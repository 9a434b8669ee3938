//! The changelog in a SQL database: what PostgreSQL, MySQL and SQLite share.

mod apply;
mod changelog;
mod database;
mod error;
mod open;
mod query;
mod read;
mod statements;

pub(crate) use changelog::reserved;
pub use changelog::{Changelog, Committed, Reservation};
pub use database::Database;
pub(crate) use database::sealed::Dialect;
pub(crate) use error::{Failed, Kind};
pub use open::open;
pub(crate) use query::{Argument, Query, Row, bound, run_with_sqlx};
pub(crate) use statements::{Statements, Templates, templates};
