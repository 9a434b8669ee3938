//! Postrider's inbox: the consumer's side, which makes duplicates harmless.
//!
//! Messages are delivered at least once, so a consumer sees some of them again: after a crash, after a time-out, after an
//! operator's replay. An [`Inbox`] remembers which events a consumer has handled. A delivery is taken with
//! [`begin`](Inbox::begin), handled, and committed; only then is it acknowledged to the broker.
//!
//! ```
//! use postrider_inbox::{ConsumerName, Delivery, Entry, Guard, Inbox, InboxError};
//! # use postrider_inbox::MemoryInbox;
//!
//! # async fn handle(body: &[u8]) {}
//! /// Whether the broker may be told that the message was handled.
//! async fn on_message(inbox: &impl Inbox, delivery: &Delivery, body: &[u8]) -> Result<bool, InboxError> {
//!     match inbox.begin(delivery).await? {
//!         Entry::First(guard) => {
//!             handle(body).await;
//!             guard.commit().await?;
//!             Ok(true)
//!         }
//!         Entry::AlreadyProcessed => Ok(true),
//!         // Somebody else has it at the moment, and may fail: the broker must bring it again.
//!         Entry::InProgress(_) | Entry::Stale { .. } => Ok(false),
//!     }
//! }
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let delivery = Delivery::new(ConsumerName::new("mailer").unwrap(), uuid::Uuid::now_v7());
//! # let inbox = MemoryInbox::default();
//! # assert!(on_message(&inbox, &delivery, b"").await.unwrap());
//! # });
//! ```
//!
//! [`run_once`] does the same around a handler.
//!
//! | inbox | what it promises |
//! |---|---|
//! | SQL, in the consumer's own transaction | the effect in that database happens exactly once |
//! | Redis | at most one handler at a time; a handled event is not handled again while Redis remembers it |
//! | [`MemoryInbox`] | the same, for as long as the process lives |
//!
//! Whatever fails, fails towards a repeat and never towards a loss: an event is remembered as processed only after its
//! handler has succeeded.

mod delivery;
mod entry;
mod error;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod keep;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
mod once;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "redis")]
pub use self::redis::{RedisGuard, RedisInbox};
pub use delivery::{Attempt, ConsumerName, Delivery, InvalidDelivery, Wire};
pub use entry::{Entry, Guard, Inbox};
pub use error::InboxError;
#[cfg(feature = "memory")]
pub use memory::{MemoryGuard, MemoryInbox};
#[cfg(feature = "mysql")]
pub use mysql::{MySqlGuard, MySqlInbox};
pub use once::{Once, RunError, run_once};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresGuard, PostgresInbox};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use sql::{ConsumerTransaction, Database, InboxTables, InboxTablesBuilder, Meanwhile, SqlGuard, SqlInbox};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteGuard, SqliteInbox};

use std::time::Duration;

/// How long a processed event is remembered, unless another time is set: seven days.
pub const DEFAULT_KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);
