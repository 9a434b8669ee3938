//! JSON lines on standard output: one line per message, for a first look and for tools that read them.

mod config;
mod outcome;
mod sink;

pub use config::StdoutConfig;
pub use sink::StdoutSink;
