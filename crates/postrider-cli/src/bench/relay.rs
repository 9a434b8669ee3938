//! The other end of the scenario with several relays: `postrider bench relay`, started by the benchmark for itself.
//!
//! It is told by a variable what to do, says that it is ready, begins at the first line of its standard input, says every few
//! milliseconds how much arrived, and ends when its input is closed, with everything that it noted. So it never outlives
//! who started it.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use postrider::any::{AnyStore, Connect};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::ledger::Ledger;
use super::measure::Relay;
use super::meter::{memory, own_cpu};
use super::scenario::Parameters;
use super::sink::Noted;

/// The variable that holds a [`Told`].
pub const VARIABLE: &str = "POSTRIDER_BENCH_RELAY";
/// How often it says how much arrived; the clock that measures it is that much late at most.
const SAYS_EVERY: Duration = Duration::from_millis(5);

/// What a relay is to do.
#[derive(Serialize, Deserialize)]
pub struct Told {
    pub url: String,
    pub with: Parameters,
}

/// What it says, a line of JSON each.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Ready,
    Arrived { count: u32 },
    Ended { bits: Vec<u64>, faults: [u32; 3], cpu_us: f64, peak_memory: Option<u64>, abandoned: usize },
}

impl Said {
    /// Reads a line; none is an error.
    pub fn read(line: Option<&str>) -> Result<Self> {
        match line {
            Some(line) => serde_json::from_str(line).context("a relay said something else"),
            None => bail!("a relay ended by itself; what it said of it is above"),
        }
    }

    fn say(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        Ok(out.flush()?)
    }
}

pub async fn run() -> Result<()> {
    let told = std::env::var(VARIABLE).context("this is for the benchmark itself; run `postrider bench`")?;
    let Told { url, with } = serde_json::from_str(&told)?;
    let store = AnyStore::connect(&url, &Connect::default()).await?;
    store.ping().await?;
    let ledger = Arc::new(Ledger::new(with.messages, &with));
    Said::Ready.say()?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    if orders.next_line().await?.is_none() {
        return Ok(());
    }
    let (cpu, memory) = (own_cpu(), memory::forget_peak());
    let relay = Relay::start(store.store(), Arc::new(Noted::new(ledger.clone(), &with)), &with)?;
    let mut before = 0;
    while tokio::time::timeout(SAYS_EVERY, orders.next_line()).await.is_err() {
        let count = ledger.arrived();
        if count != before {
            Said::Arrived { count }.say()?;
        }
        before = count;
    }
    let abandoned = relay.stop().await?;
    let cpu_us = own_cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
    let peak_memory = if memory { memory::peak() } else { None };
    Said::Ended { bits: ledger.bits(), faults: ledger.faults(), cpu_us, peak_memory, abandoned }.say()
}
