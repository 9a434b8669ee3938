//! The outbox on PostgreSQL 13 and newer.

mod claimed;
mod doorbell;
pub mod enqueue;
mod error;
mod examine;
mod grants;
pub mod migrate;
mod operate;
mod run;
pub mod statements;
mod store;
mod types;

pub(crate) use error::PROTOCOL;
#[doc(hidden)]
pub use error::{is_login, kind_of, sqlstate};
pub use store::PostgresStore;
