//! The end: what the database holds against what the terminal got.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::relay::Terminal;
use super::shop::Shop;

/// What was found. It exists only if every committed order arrived and no other did.
pub struct Proof {
    pub committed: usize,
    pub called_off: u32,
    pub repeated: usize,
    pub most: u32,
    retries: i64,
    dead: i64,
    median: Duration,
    slowest: Duration,
}

/// Compares what the clerks were told, the orders in the database and the terminal's own notes.
pub async fn of(shop: &Shop, terminal: &Terminal) -> Result<Proof> {
    let committed: BTreeSet<u32> = shop.orders().await?.into_iter().collect();
    let told = shop.told();
    ensure!(committed == told, "the clerks were told of {} commits, the database has {}", told.len(), committed.len());
    let (dead, retries) = shop.dead_and_retries().await?;
    let notes = terminal.notes();
    let arrived: BTreeSet<u32> = notes.arrivals.keys().copied().collect();
    let (missing, uncalled): (Vec<_>, Vec<_>) =
        (committed.difference(&arrived).collect(), arrived.difference(&committed).collect());
    ensure!(missing.is_empty(), "these orders were committed and never arrived: {missing:?}");
    ensure!(uncalled.is_empty(), "these orders arrived and were never committed: {uncalled:?}");
    Ok(Proof {
        committed: committed.len(),
        called_off: shop.called_off.load(Ordering::Relaxed),
        repeated: notes.arrivals.values().filter(|times| **times > 1).count(),
        most: notes.arrivals.values().copied().max().unwrap_or(0),
        retries,
        dead,
        median: percentile(&notes.latencies, 50),
        slowest: percentile(&notes.latencies, 99),
    })
}

impl Proof {
    pub fn print(&self, took: Duration) {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        println!();
        println!("orders committed           {:>6}", self.committed);
        println!("  of them delivered        {:>6}  all of them", self.committed);
        println!("  once                     {:>6}", self.committed - self.repeated);
        let why = match self.repeated {
            0 => String::new(),
            _ => format!("  at most {} times; the answer to a publish was lost", self.most),
        };
        println!("  more than once           {:>6}{why}", self.repeated);
        println!("orders called off          {:>6}  none of them delivered", self.called_off);
        println!("attempts that failed       {:>6}  and were repeated", self.retries);
        println!("messages given up (dead)   {:>6}", self.dead);
        println!(
            "latency, half of them      {:>6.1} ms, 99 of 100 within {:.1} ms",
            millis(self.median),
            millis(self.slowest)
        );
        println!("time                       {:>6.1} s", took.as_secs_f64());
    }
}

/// Says how to look at what is left.
pub fn say_how_to_look(file: &Path) {
    let command = if std::env::var_os("CARGO").is_some() { "cargo run --" } else { "postrider" };
    let url = format!("sqlite:{}", file.display());
    println!("\nEverything is in {}. Look at it, and play with it:", file.display());
    println!("  {command} status --database-url '{url}'");
    println!("  {command} enqueue --database-url '{url}' -n shop -t order.placed '{{\"order\": 4711}}'");
    println!("  {command} run --database-url '{url}' --sink stdout");
}

/// The duration that so many in a hundred stay within.
pub fn percentile(durations: &[Duration], hundredths: usize) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * hundredths / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
