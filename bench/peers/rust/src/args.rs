//! The command line, the same for every peer.

use clap::{Parser, ValueEnum};

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Job {
    /// Write as fast as possible.
    Enqueue,
    /// Handle a backlog.
    Drain,
    /// Handle few messages, each soon.
    Latency,
}

#[derive(Debug, Parser)]
pub struct Args {
    pub job: Job,
    /// An empty database of its own.
    #[arg(long)]
    pub url: String,
    /// enqueue: who write at the same time.
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// enqueue: messages in a transaction.
    #[arg(long, default_value_t = 1)]
    pub per_call: u32,
    /// drain: the backlog.
    #[arg(long, default_value_t = 1_000)]
    pub messages: u32,
    /// enqueue, latency: how long.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// latency: messages a second.
    #[arg(long, default_value_t = 50)]
    pub rate: u32,
    /// A setting of the peer, as name=value; only some have any.
    #[arg(long)]
    pub with: Vec<String>,
}

impl Args {
    /// The value of a setting, or what it is unless given.
    pub fn setting(&self, name: &str, otherwise: &str) -> String {
        let pairs = self.with.iter().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).last().unwrap_or(otherwise).to_owned()
    }
}

pub fn read() -> Args {
    Args::parse()
}
