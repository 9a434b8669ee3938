//! Private brokers, and the Python that brings some of them and reads from all of them. Each is started by the test
//! process and ends with it, like the database servers.

pub mod journey;
pub mod kafka;
pub mod moto;
pub mod nats;
pub mod pubsub;
pub mod rabbitmq;
pub mod redis;
pub mod venv;
