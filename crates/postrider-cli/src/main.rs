//! `postrider`: a relay that delivers the messages of an outbox, and the operator's tool.

mod config;

fn main() {}
