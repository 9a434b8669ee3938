//! The outbox in memory, for tests: no database, the same rules.
//!
//! [`MemoryStore`] keeps every promise of the database stores (one conformance suite runs for all of them) except
//! that its rows die with the process. Uncommitted messages are invisible, dedupe keys and fences hold, and time
//! follows tokio's clock, so that `tokio::time::pause` works, or a [`ManualClock`].
//!
//! A test of an application looks like this:
//!
//! ```
//! use postrider_core::Message;
//! use postrider_store::{EnqueueError, MemoryStore, MemoryTransaction, Outbox};
//!
//! // The code under test takes the transaction it works in.
//! async fn place_order(outbox: &Outbox, transaction: &mut MemoryTransaction, order: u32) -> Result<(), EnqueueError> {
//!     let message = Message::json("shop", "order.placed", &order).key(order.to_string());
//!     outbox.enqueue(transaction, message).await.map(|_| ())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = MemoryStore::new();
//!
//! let mut transaction = store.begin();
//! place_order(&store.outbox(), &mut transaction, 7).await.unwrap();
//! store.assert_nothing_enqueued(); // not before the commit
//! transaction.commit();
//!
//! let placed = store.assert_enqueued_once("shop", "order.placed");
//! assert_eq!(placed.key.as_deref(), Some("7"));
//! assert_eq!(placed.payload.as_bytes(), b"7");
//! # });
//! ```

mod assert;
mod claim;
mod doorbell;
mod enqueue;
mod operate;
mod retain;
mod settle;
mod store;
mod table;

pub use crate::clock::{Clock, ManualClock, TokioClock};
pub use enqueue::MemoryTransaction;
pub use store::MemoryStore;
pub use table::StoredMessage;
