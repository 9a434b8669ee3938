//! Postrider's stores: the outbox table on PostgreSQL, MySQL and SQLite, and in memory for tests.
//!
//! Each store has the same files: `enqueue` (the producer's side, in the caller's own transaction), `store`
//! (the relay's verbs), `doorbell` (waking up). What differs between databases is SQL text, one statement per
//! file under `sql/<dialect>/`, rendered once from validated names in [`names`] and `statements`.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod any;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod claimed;
#[cfg_attr(not(all(feature = "memory", feature = "sqlite")), allow(dead_code))]
mod clock;
pub mod enqueue;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod examine;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[doc(hidden)]
pub mod failure;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod grants;
pub mod layout;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod lines;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod migration;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod names;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite", feature = "memory"))]
mod operate;
#[cfg(feature = "mysql")]
mod pick;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod tenant;

/// How many lanes get a share of a fair claim; the next claim goes on with the next ones.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite", feature = "memory"))]
const LANES_PER_CLAIM: usize = 64;

/// How many lanes a fair claim looks at to find them: those of others and those that nothing is due of get no share.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite", feature = "memory"))]
const LANES_LOOKED_AT: usize = 512;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use any::{AnyStore, Connect};
pub use enqueue::{CallerTransaction, EnqueueError, Outbox};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use grants::{InvalidRole, Roles};
pub use layout::{Layout, LayoutError};
#[cfg(feature = "memory")]
pub use memory::{MemoryStore, MemoryTransaction};
#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
pub use names::{InvalidName, Names};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use tenant::{Sight, TenantProtection, TenantSetting, Use};
