//! The outbox on PostgreSQL 13 and newer.

mod claimed;
mod doorbell;
pub mod enqueue;
mod error;
mod examine;
mod grants;
mod held;
mod layout;
mod layout_check;
pub mod migrate;
mod operate;
mod parts;
mod protect;
mod row_security;
mod run;
pub mod statements;
mod store;
mod table;
mod tenant;
mod types;

/// What the name of the constraint that ties dedupe keys to tenants ends with.
const KEYS_CHECK: &str = "_dedupe_check";

pub(crate) use error::PROTOCOL;
#[doc(hidden)]
pub use error::{is_login, kind_of, sqlstate};
pub use store::PostgresStore;
