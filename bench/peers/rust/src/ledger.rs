//! Who arrived: each message once, and when.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::Notify;

/// Somebody who is slower than this is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// Notes messages by their number. A note costs a few atomic operations.
#[derive(Debug)]
pub struct Ledger {
    began: Instant,
    /// When each arrived, in nanoseconds since the beginning; 0 if it has not.
    arrived: Vec<AtomicU64>,
    seen: AtomicU32,
    repeated: AtomicU32,
    foreign: AtomicU32,
    complete: Notify,
}

impl Ledger {
    pub fn new(messages: u32) -> Self {
        Self {
            began: Instant::now(),
            arrived: (0..messages).map(|_| AtomicU64::new(0)).collect(),
            seen: AtomicU32::new(0),
            repeated: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
            complete: Notify::new(),
        }
    }

    pub fn now(&self) -> u64 {
        (self.began.elapsed().as_nanos() as u64).max(1)
    }

    pub fn note(&self, n: u32) {
        let Some(arrived) = self.arrived.get(n as usize) else {
            self.foreign.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if arrived.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        } else if self.seen.fetch_add(1, Ordering::AcqRel) + 1 == self.messages() {
            self.complete.notify_one();
        }
    }

    pub fn messages(&self) -> u32 {
        self.arrived.len() as u32
    }

    pub fn missing(&self) -> u32 {
        self.messages() - self.seen.load(Ordering::Acquire)
    }

    pub fn repeated(&self) -> u32 {
        self.repeated.load(Ordering::Relaxed)
    }

    pub fn foreign(&self) -> u32 {
        self.foreign.load(Ordering::Relaxed)
    }

    pub fn arrived(&self, n: u32) -> Option<u64> {
        Some(self.arrived.get(n as usize)?.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Waits until all are there.
    pub async fn complete(&self) -> Result<()> {
        if self.missing() > 0 && tokio::time::timeout(PATIENCE, self.complete.notified()).await.is_err() {
            bail!("{} of {} messages did not arrive in {PATIENCE:?}", self.missing(), self.messages());
        }
        Ok(())
    }
}
