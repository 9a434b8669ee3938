//! Private brokers, and the Python that brings some of them and reads from all of them. Each is started by the test
//! process and ends with it, like the database servers.

pub mod journey;
pub mod moto;
pub mod nats;
pub mod rabbitmq;
pub mod redis;
pub mod venv;
//! Brokers for the tests of sinks.
pub mod kafka;
//! Brokers: one module each, with a server for tests and a plain client that reads from it.
pub mod pubsub;
