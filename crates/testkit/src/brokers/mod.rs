//! Private brokers, the Python that brings some of them and reads from all of them, and the Node of other consumers. Each
//! broker is started by the test process and ends with it, like the database servers.

pub mod journey;
pub mod kafka;
pub mod moto;
pub mod nats;
pub mod node;
pub mod pubsub;
pub mod rabbitmq;
pub mod redis;
pub mod venv;
