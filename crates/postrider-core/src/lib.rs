//! The rules of Postrider, a transactional outbox: no database and no broker in here.
//!
//! A message travels `enqueue → claim → publish → settle → retain`, and the modules are listed in that
//! order. Nothing flows backwards: no [`Sink`] knows a [`Store`], no store knows a sink, and only the
//! [`Dispatcher`] knows both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`], [`name`], [`json`], [`trace`] | what a producer writes, and every check made before SQL |
//! | [`state`], [`lease`], [`retry`] | the life of a row, the right to publish it, and when to try again |
//! | [`store`], [`doorbell`] | the seam to a database: batch verbs, and waking up |
//! | [`sink`], [`outcome`] | the seam to a destination, and what it said of a message |
//! | [`dispatch`] | claims, publishes and settles until it is told to stop |
//! | [`outbox`] | the low-level API: claim a batch, ack or nack by id |

pub mod dispatch;
pub mod doorbell;
pub mod json;
pub mod lease;
pub mod message;
pub mod name;
pub mod outbox;
pub mod outcome;
pub mod retry;
pub mod sink;
pub mod state;
pub mod store;
pub mod trace;

pub use dispatch::{BreakerConfig, ConfigError, Dispatcher, DispatcherBuilder, Ended};
pub use doorbell::{Armed, Doorbell};
pub use lease::{Lease, RowAddress};
pub use message::{Enqueued, InvalidMessage, Limits, Message, NewRow};
pub use outcome::{Outcome, PublishError};
pub use retry::{ExponentialBackoff, RetryPolicy};
pub use sink::{Sink, callback};
pub use state::State;
pub use store::{ClaimedMessage, Payload, Scope, Settled, Store, StoreError, StoreErrorKind};
