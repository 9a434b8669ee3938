//! What all peers in Rust share: the three jobs, the payloads, and the check that nothing was lost or repeated.
//!
//! A peer is what [`Peer`] asks for, and its program is `peers::main::<ThePeer>()`. The programs in `../node` and `../python`
//! do the same in the same way: see `../README.md`.

mod args;
mod jobs;
mod ledger;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use args::{Args, Job};
pub use ledger::Ledger;

/// Fills a payload up to 200 bytes, if its number has ten digits: as `postrider bench` does.
const PAD: usize = 175;

/// A payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Letter {
    pub n: u32,
    pub pad: String,
}

impl Letter {
    pub fn new(n: u32) -> Self {
        let letters = "abcdefghijklmnopqrstuvwxyz0123456789".chars().cycle();
        Self { n, pad: letters.take(PAD).collect() }
    }

    /// So many, from this number on.
    pub fn many(first: u32, count: u32) -> Vec<Self> {
        let one = Self::new(first);
        (first..first + count).map(|n| Self { n, ..one.clone() }).collect()
    }

    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// A queue on PostgreSQL, in a database of its own that is empty before [`Peer::set_up`].
pub trait Peer: Sized + Send + Sync + 'static {
    /// What one of several clients writes with.
    type Client: Send;
    /// Whoever handles messages, while it is there.
    type Worker: Send;

    /// As `peers.toml` calls it.
    const NAME: &'static str;
    /// SQL that answers the number of each message that waits, one per row, as a bigint.
    const NUMBERS: &'static str;
    /// SQL that answers as a bigint how many messages are not settled.
    const OPEN: &'static str;

    /// Makes its tables.
    fn set_up(args: &Args) -> impl Future<Output = Result<Self>> + Send;

    /// What was chosen of its settings.
    fn settings(&self) -> BTreeMap<String, String>;

    /// A client, with a connection of its own.
    fn client(&self) -> impl Future<Output = Result<Self::Client>> + Send;

    /// Writes messages with consecutive numbers in a transaction of the caller, and commits it.
    fn write(&self, client: &mut Self::Client, first: u32, count: u32) -> impl Future<Output = Result<()>> + Send;

    /// What must happen between the last write of a backlog and its first read.
    fn after_fill(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Starts to hand messages to a handler that does nothing but to note them.
    fn start(&self, ledger: Arc<Ledger>) -> impl Future<Output = Result<Self::Worker>> + Send;

    fn stop(&self, worker: Self::Worker) -> impl Future<Output = Result<()>> + Send;
}

/// The program of a peer: does the job of the command line and prints what came of it as a line of JSON.
pub fn main<P: Peer>() -> Result<()> {
    let args = args::read();
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(jobs::run::<P>(&args))?;
    println!("{}", serde_json::to_string(&report)?);
    // A worker that does not end is not waited for: what it had to do is done.
    runtime.shutdown_background();
    anyhow::ensure!(report.ok, "messages are missing, repeated or not settled: see the line above");
    Ok(())
}
