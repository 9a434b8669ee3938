//! Postrider, a transactional outbox.
//!
//! An application changes its database and tells the world, and the two must not come apart. Write a
//! [`Message`] in the same transaction as the change; a [`Dispatcher`] delivers it to a [`Sink`] at least
//! once, in spite of crashes, slow brokers and several replicas.

pub use postrider_core::*;
pub use postrider_store::*;
