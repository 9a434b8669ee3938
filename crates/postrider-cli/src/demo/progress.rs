//! What the reader sees while it runs: a line per message, and how far it is.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use postrider::store::Scope;
use postrider::{ClaimedMessage, SqliteStore, Store};
use tokio_util::sync::CancellationToken;

use super::proof::percentile;
use super::relay::Terminal;
use super::shop::Shop;

/// Progress on a terminal, or as plain lines where there is none. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    quiet: bool,
}

impl Progress {
    pub fn new(orders: u32, quiet: bool) -> Self {
        let bar = ProgressBar::new(u64::from(orders));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
            bar.set_style(style);
        }
        Self { bar, quiet }
    }

    /// Delivers a message to the terminal.
    pub fn tell(&self, message: &ClaimedMessage) {
        if self.quiet {
            return;
        }
        let attempt = if message.attempts > 1 { format!("  (attempt {})", message.attempts) } else { String::new() };
        let payload = String::from_utf8_lossy(message.payload.as_bytes());
        self.say(&format!("{} {payload}{attempt}", message.topic));
    }

    fn say(&self, line: &str) {
        match self.bar.is_hidden() {
            true => println!("{line}"),
            false => self.bar.println(line),
        }
    }

    /// Shows how far it is until it is told to stop.
    pub async fn watch(
        self,
        store: SqliteStore,
        shop: Shop,
        terminal: std::sync::Arc<Terminal>,
        stop: CancellationToken,
    ) {
        let started = Instant::now();
        let pause = if self.bar.is_hidden() { Duration::from_secs(1) } else { Duration::from_millis(100) };
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let dead = store.stats(&Scope::all()).await.map_or(0, |stats| stats.dead);
            let written = shop.told().len();
            let called_off = shop.called_off.load(Ordering::Relaxed);
            let (delivered, retried, latency) = {
                let notes = terminal.notes();
                (notes.arrivals.len(), notes.failures, percentile(&notes.latencies, 50))
            };
            let rate = delivered as f64 / started.elapsed().as_secs_f64();
            let line = format!(
                "written {written}, delivered {delivered}, retried {retried}, dead {dead}, {rate:.0}/s, latency {:.1} ms",
                latency.as_secs_f64() * 1e3
            );
            self.bar.set_position(written as u64 + u64::from(called_off));
            match self.bar.is_hidden() {
                true => println!("-- {line}"),
                false => self.bar.set_message(line),
            }
        }
        self.bar.finish_and_clear();
    }
}
