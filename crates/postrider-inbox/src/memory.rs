//! The inbox in memory, for tests and for consumers of a single process that may forget everything when it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::keep::LONGEST_KEEP;
use crate::{Attempt, ConsumerName, DEFAULT_KEEP, Delivery, Entry, Guard, Inbox, InboxError};

/// What is done between two looks for what may be forgotten.
const CALLS_BETWEEN_SWEEPS: usize = 1_024;

/// An inbox in memory. Clones share what they remember.
#[derive(Debug, Clone)]
pub struct MemoryInbox {
    table: Arc<Mutex<Table>>,
    keep: Duration,
}

impl Default for MemoryInbox {
    fn default() -> Self {
        Self { table: Arc::default(), keep: DEFAULT_KEEP }
    }
}

impl MemoryInbox {
    /// Remembers processed events for this long, at most ten years.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Key = (ConsumerName, Uuid);

#[derive(Debug, Default)]
struct Table {
    records: HashMap<Key, Record>,
    calls: usize,
}

#[derive(Debug)]
struct Record {
    state: State,
    /// The newest attempt that was seen.
    seen: Option<Attempt>,
    /// When it may be forgotten; a claim lives as long as its guard.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Claimed,
    Released,
    Processed,
}

impl Table {
    /// The record of an event, if it is still to be remembered.
    fn record(&mut self, key: &Key) -> Option<&mut Record> {
        let now = Instant::now();
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_BETWEEN_SWEEPS) {
            self.records.retain(|_, record| record.is_remembered(now));
        }
        self.records.get_mut(key).filter(|record| record.is_remembered(now))
    }
}

impl Record {
    fn is_remembered(&self, now: Instant) -> bool {
        self.state == State::Claimed || self.until > now
    }
}

/// When a time that begins now ends.
fn end_of(keep: Duration) -> Instant {
    Instant::now() + keep.min(LONGEST_KEEP)
}

impl Inbox for MemoryInbox {
    type Guard = MemoryGuard;

    async fn begin(&self, delivery: &Delivery) -> Result<Entry<MemoryGuard>, InboxError> {
        let key = (delivery.consumer.clone(), delivery.event);
        let mut table = self.table();
        let mut seen = delivery.attempt;
        if let Some(record) = table.record(&key) {
            if record.state == State::Processed {
                return Ok(Entry::AlreadyProcessed);
            }
            if let Some(newest) = record.seen.filter(|newest| delivery.attempt.is_some_and(|this| this < *newest)) {
                return Ok(Entry::Stale { seen: newest });
            }
            record.seen = record.seen.max(delivery.attempt);
            seen = record.seen;
            if record.state == State::Claimed {
                return Ok(Entry::InProgress(Duration::ZERO));
            }
        }
        let until = end_of(self.keep);
        table.records.insert(key.clone(), Record { state: State::Claimed, seen, until });
        Ok(Entry::First(MemoryGuard { inbox: self.clone(), key: Some(key) }))
    }

    async fn check_and_mark_processed(
        &self,
        consumer: &ConsumerName,
        event: Uuid,
        ttl: Duration,
    ) -> Result<bool, InboxError> {
        let key = (consumer.clone(), event);
        let mut table = self.table();
        let mut seen = None;
        match table.record(&key).map(|record| (record.state, record.seen)) {
            Some((State::Processed, _)) => return Ok(true),
            Some((State::Claimed, _)) => return Err(InboxError::InProgress { event }),
            Some((State::Released, newest)) => seen = newest,
            None => {}
        }
        table.records.insert(key, Record { state: State::Processed, seen, until: end_of(ttl) });
        Ok(false)
    }
}

/// The right to handle an event that a [`MemoryInbox`] gave. It cannot be lost: the memory that it is in dies with it.
#[derive(Debug)]
pub struct MemoryGuard {
    inbox: MemoryInbox,
    /// Taken when the guard is settled.
    key: Option<Key>,
}

impl MemoryGuard {
    fn settle(&mut self, state: State) {
        let Some(key) = self.key.take() else { return };
        let mut table = self.inbox.table();
        let Some(record) = table.records.get_mut(&key) else { return };
        record.state = state;
        record.until = end_of(self.inbox.keep);
        if state == State::Released && record.seen.is_none() {
            table.records.remove(&key);
        }
    }
}

impl Guard for MemoryGuard {
    async fn commit(mut self) -> Result<(), InboxError> {
        self.settle(State::Processed);
        Ok(())
    }

    async fn release(mut self) -> Result<(), InboxError> {
        self.settle(State::Released);
        Ok(())
    }
}

impl Drop for MemoryGuard {
    fn drop(&mut self) {
        self.settle(State::Released);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        Delivery::new(ConsumerName::new("mailer").expect("a plain name"), Uuid::now_v7())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_forgotten() {
        let inbox = MemoryInbox::default().keep(Duration::from_secs(60));
        let delivery = delivery();
        inbox.begin(&delivery).await.expect("it answers").first().expect("a guard").commit().await.expect("it commits");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(inbox.begin(&delivery).await.expect("it answers").is_already_processed());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(inbox.begin(&delivery).await.expect("it answers").first().is_some());
    }

    #[tokio::test]
    async fn an_endless_time_to_keep_is_a_long_one() {
        let inbox = MemoryInbox::default().keep(Duration::MAX);
        let (delivery, marked) = (delivery(), Uuid::now_v7());
        inbox.begin(&delivery).await.expect("it answers").first().expect("a guard").commit().await.expect("it commits");
        assert!(inbox.begin(&delivery).await.expect("it answers").is_already_processed());
        for is_processed in [false, true] {
            let seen = inbox.check_and_mark_processed(&delivery.consumer, marked, Duration::MAX).await;
            assert_eq!(seen.expect("it answers"), is_processed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_does_not_grow_for_ever() {
        let inbox = MemoryInbox::default().keep(Duration::from_secs(60));
        for _ in 0..10 * CALLS_BETWEEN_SWEEPS {
            let seen = inbox.check_and_mark_processed(&delivery().consumer, Uuid::now_v7(), inbox.keep).await;
            assert!(!seen.expect("it answers"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(inbox.table().records.len() <= 60 + CALLS_BETWEEN_SWEEPS);
    }
}
