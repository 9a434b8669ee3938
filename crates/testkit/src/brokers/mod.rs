//! Private brokers, and the Python that brings some of them and reads from all of them.

pub mod journey;
pub mod nats;
pub mod redis;
pub mod venv;
