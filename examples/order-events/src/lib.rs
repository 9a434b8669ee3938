//! Order events: from the transaction of an order, through a locked table and one Pub/Sub topic, to a consumer that handles each
//! of them once. Read the modules in this order:
//!
//! - [`events`]: which events there are, and the envelope that each is written in;
//! - [`orders`]: an order and its event in one transaction;
//! - [`publisher`], with its [`settings`]: the worker, which knows neither orders nor events;
//! - [`consumer`]: duplicates are possible, and do nothing.
//!
//! [`scene`] has the private servers of the demonstration and of the tests.

pub mod consumer;
pub mod events;
pub mod orders;
pub mod publisher;
pub mod scene;
pub mod settings;
