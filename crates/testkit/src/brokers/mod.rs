//! Brokers for the tests of sinks.

pub mod kafka;
