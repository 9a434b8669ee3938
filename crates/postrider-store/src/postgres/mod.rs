//! The outbox on PostgreSQL 13 and newer.

mod claimed;
mod doorbell;
pub mod enqueue;
mod error;
pub mod migrate;
mod operate;
mod run;
pub mod statements;
mod store;
mod types;

pub use store::PostgresStore;
