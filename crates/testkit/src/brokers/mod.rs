//! Brokers: one module each, with a server for tests and a plain client that reads from it.

pub mod pubsub;
