//! The rules of Postrider, a transactional outbox: no database and no broker in here.
//!
//! A message travels `enqueue → claim → publish → settle → retain`, and the modules are listed in that
//! order. Nothing flows backwards: no [`Sink`] knows a [`Store`], no store knows a sink, and only the
//! [`Dispatcher`] knows both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`], [`name`], [`json`], [`trace`] | what a producer writes, and every check made before SQL |
//! | [`registry`], [`envelope`] | the events of an application, and the envelope that consumers read |
//! | [`state`], [`lease`], [`retry`] | the life of a row, the right to publish it, and when to try again |
//! | [`store`], [`doorbell`] | the seam to a database: batch verbs, and waking up |
//! | [`sink`], [`outcome`] | the seam to a destination, and what it said of a message |
//! | [`route`], [`breaker`] | which sink a message goes to, and leaving alone what is down |
//! | [`dispatch`] | claims, publishes and settles until it is told to stop |
//! | [`operate`] | the operator's verbs: count, look, replay, discard, examine |
//! | [`outbox`] | the low-level API: claim a batch, ack or nack by id |

pub mod breaker;
pub mod dispatch;
pub mod doorbell;
pub mod envelope;
pub mod json;
pub mod lease;
pub mod message;
pub mod name;
pub mod operate;
pub mod outbox;
pub mod outcome;
pub mod registry;
pub mod retry;
pub mod route;
#[doc(hidden)]
pub mod sabotage;
pub mod sink;
pub mod state;
pub mod store;
pub mod trace;
pub mod turns;

pub use breaker::{Breaker, BreakerConfig, Gate};
pub use dispatch::{ConfigError, Dispatcher, DispatcherBuilder, Ended, Pulse, Signs, TenantLimit, TenantLimits};
pub use doorbell::{Armed, Doorbell};
pub use envelope::{Actor, EventEnvelope};
pub use lease::{Lease, RowAddress};
pub use message::{Enqueued, InvalidMessage, Limits, Message, NewRow};
pub use operate::Operator;
pub use outcome::{Outcome, PublishError};
pub use registry::{Event, Registry, RegistryError};
pub use retry::{ExponentialBackoff, RetryPolicy};
pub use route::{Destination, Route, Router};
pub use sink::{BatchFor, Sink, callback};
pub use state::State;
pub use store::{ClaimedMessage, Order, Payload, Scope, Settled, Store, StoreError, StoreErrorKind};
