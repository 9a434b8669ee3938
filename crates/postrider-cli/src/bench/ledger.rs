//! What arrived: every message once, none that was not sent, in order where order was asked for.
//!
//! Keeping it must not show in the figures. Everything is allocated before the clock starts; an arrival is a number of the
//! payload's first bytes, one bit in a map and one count, without a lock and without looking at the id. The bare loop keeps the same
//! ledger. The verdict is given after the clock has stopped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::Notify;

use super::letter::number;
use super::scenario::{Order, Parameters};

/// No arrival for so long means that nothing comes any more.
const STALLED_AFTER: Duration = Duration::from_secs(90);
const NEVER: u64 = u64::MAX;

/// See the module.
pub struct Ledger {
    expected: u32,
    seen: Vec<AtomicU64>,
    arrived: AtomicU32,
    repeated: AtomicU32,
    foreign: AtomicU32,
    disordered: AtomicU32,
    /// The number after the last that came, of each key or of all together; empty where no order is checked.
    next: Vec<AtomicU32>,
    /// When each came, in nanoseconds since the beginning; empty where nobody asks.
    times: Vec<AtomicU64>,
    began: Instant,
    all: Notify,
}

impl Ledger {
    /// For messages numbered from zero.
    pub fn new(expected: u32, parameters: &Parameters) -> Self {
        let lines = match parameters.order {
            Order::None => 0,
            Order::Enqueue => 1,
            Order::Key => parameters.keys as usize,
        };
        Self {
            expected,
            seen: (0..expected.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            arrived: AtomicU32::new(0),
            repeated: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
            disordered: AtomicU32::new(0),
            next: (0..lines).map(|_| AtomicU32::new(0)).collect(),
            times: Vec::new(),
            began: Instant::now(),
            all: Notify::new(),
        }
    }

    /// Notes also when each message came.
    pub fn timed(mut self) -> Self {
        self.times = (0..self.expected).map(|_| AtomicU64::new(NEVER)).collect();
        self
    }

    /// What arrival times count from.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// A message with this payload arrived.
    pub fn note(&self, payload: &[u8]) {
        match number(payload) {
            Some(n) => self.note_number(n),
            None => drop(self.foreign.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub fn note_number(&self, n: u32) {
        let Some(word) = self.seen.get(n as usize / 64).filter(|_| n < self.expected) else {
            self.foreign.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let bit = 1 << (n % 64);
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if !self.next.is_empty() {
            let line = &self.next[n as usize % self.next.len()];
            if line.swap(n + 1, Ordering::Relaxed) > n {
                self.disordered.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(time) = self.times.get(n as usize) {
            time.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if self.arrived.fetch_add(1, Ordering::Relaxed) + 1 == self.expected {
            self.all.notify_one();
        }
    }

    /// How many different messages arrived.
    pub fn arrived(&self) -> u32 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Waits until each has arrived once. Fails when nothing more comes.
    pub async fn complete(&self) -> Result<()> {
        let mut before = 0;
        while self.arrived() < self.expected {
            if tokio::time::timeout(STALLED_AFTER, self.all.notified()).await.is_ok() {
                return Ok(());
            }
            let now = self.arrived();
            if now == before {
                bail!("{} of {} messages never arrived", self.expected - now, self.expected);
            }
            before = now;
        }
        Ok(())
    }

    /// When each message arrived, since the beginning, by its number; nothing for those that did not.
    pub fn times(&self) -> impl Iterator<Item = (u32, Option<Duration>)> {
        let time = |time: &AtomicU64| Some(time.load(Ordering::Relaxed)).filter(|time| *time != NEVER);
        (0..).zip(self.times.iter().map(move |at| time(at).map(Duration::from_nanos)))
    }

    /// The bits of what arrived, for another process.
    pub fn bits(&self) -> Vec<u64> {
        self.seen.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// What was wrong besides what is missing, for another process.
    pub fn faults(&self) -> [u32; 3] {
        [&self.repeated, &self.foreign, &self.disordered].map(|count| count.load(Ordering::Relaxed))
    }

    /// Adds what another process noted. A message that both got is a repeat.
    pub fn merge(&self, bits: &[u64], faults: [u32; 3]) {
        for (word, theirs) in self.seen.iter().zip(bits) {
            let ours = word.fetch_or(*theirs, Ordering::Relaxed);
            self.repeated.fetch_add((ours & theirs).count_ones(), Ordering::Relaxed);
            self.arrived.fetch_add((theirs & !ours).count_ones(), Ordering::Relaxed);
        }
        for (count, theirs) in [&self.repeated, &self.foreign, &self.disordered].into_iter().zip(faults) {
            count.fetch_add(theirs, Ordering::Relaxed);
        }
    }

    /// All that is wrong; nothing if each message came once and in order.
    pub fn verdict(&self) -> Vec<String> {
        self.verdict_with(self.faults())
    }

    /// The same of somebody who may get a message again.
    pub fn verdict_but_repeats(&self) -> Vec<String> {
        let [_, foreign, disordered] = self.faults();
        self.verdict_with([0, foreign, disordered])
    }

    fn verdict_with(&self, [repeated, foreign, disordered]: [u32; 3]) -> Vec<String> {
        let lost = self.expected - self.arrived();
        let told = [
            (lost, "never arrived"),
            (repeated, "arrived more than once"),
            (foreign, "arrived that nobody had sent"),
            (disordered, "arrived out of order"),
        ];
        let say = |(count, what): (u32, &str)| format!("{} {what}", crate::output::messages(count.into()));
        told.into_iter().filter(|(count, _)| *count > 0).map(say).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(order: Order, keys: u32) -> Ledger {
        Ledger::new(100, &Parameters { order, keys, ..Parameters::default() })
    }

    fn verdict_on(ledger: &Ledger, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        numbers.into_iter().for_each(|n| ledger.note_number(n));
        ledger.verdict()
    }

    #[test]
    fn all_of_them_once_is_well() {
        assert_eq!(verdict_on(&ledger(Order::None, 1), (0..100).rev()), [""; 0]);
        assert_eq!(verdict_on(&ledger(Order::Enqueue, 1), 0..100), [""; 0]);
        assert_eq!(verdict_on(&ledger(Order::Key, 10), 0..100), [""; 0]);
    }

    #[test]
    fn a_lost_message_is_seen() {
        let found = verdict_on(&ledger(Order::None, 1), (0..100).filter(|n| *n != 64));
        assert_eq!(found, ["1 message never arrived"]);
    }

    #[test]
    fn a_repeated_message_is_seen() {
        let found = verdict_on(&ledger(Order::None, 1), (0..100).chain([63, 99]));
        assert_eq!(found, ["2 messages arrived more than once"]);
    }

    #[test]
    fn a_message_that_nobody_sent_is_seen() {
        let ledger = ledger(Order::None, 1);
        ledger.note(b"{}");
        assert_eq!(verdict_on(&ledger, 0..101), ["2 messages arrived that nobody had sent"]);
    }

    #[test]
    fn a_message_out_of_order_is_seen() {
        let swapped = |n: u32| {
            if n == 10 {
                11
            } else if n == 11 {
                10
            } else {
                n
            }
        };
        assert_eq!(verdict_on(&ledger(Order::Enqueue, 1), (0..100).map(swapped)), ["1 message arrived out of order"]);
        let of_one_key = |n: u32| {
            if n == 10 {
                20
            } else if n == 20 {
                10
            } else {
                n
            }
        };
        assert_eq!(verdict_on(&ledger(Order::Key, 10), (0..100).map(of_one_key)), ["1 message arrived out of order"]);
        assert_eq!(verdict_on(&ledger(Order::Key, 10), (0..100).map(swapped)), [""; 0], "other keys do not matter");
    }

    #[test]
    fn what_two_processes_got_is_a_repeat() {
        let (one, other) = (ledger(Order::None, 1), ledger(Order::None, 1));
        (0..60).for_each(|n| one.note_number(n));
        (50..100).for_each(|n| other.note_number(n));
        one.merge(&other.bits(), other.faults());
        assert_eq!(one.verdict(), ["10 messages arrived more than once"]);
    }

    #[tokio::test]
    async fn completeness_is_waited_for() {
        let ledger = std::sync::Arc::new(ledger(Order::None, 1));
        let waiting = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.complete().await }
        });
        (0..100).for_each(|n| ledger.note_number(n));
        assert!(waiting.await.expect("a task").is_ok());
    }
}
