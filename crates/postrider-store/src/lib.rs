//! Postrider's stores: the outbox table on PostgreSQL, and in memory for tests.
//!
//! Each store has the same files: `enqueue` (the producer's side, in the caller's own transaction), `store`
//! (the relay's verbs), `doorbell` (waking up). What differs between databases is SQL text, one statement per
//! file under `sql/<dialect>/`, rendered once from validated names in [`names`] and `statements`.

pub mod enqueue;
#[cfg(feature = "memory")]
pub mod memory;
pub mod names;
#[cfg(feature = "postgres")]
pub mod postgres;

pub use enqueue::{CallerTransaction, EnqueueError, Outbox};
#[cfg(feature = "memory")]
pub use memory::{MemoryStore, MemoryTransaction};
pub use names::{InvalidName, Names};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
