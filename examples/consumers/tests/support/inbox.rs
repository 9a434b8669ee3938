//! An inbox that says what it was asked, and fails when it is told to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider::inbox::{ConsumerName, Delivery, Entry, Guard, Inbox, InboxError, MemoryGuard, MemoryInbox};
use uuid::Uuid;

#[derive(Clone, Default)]
pub struct Watched {
    /// The inbox itself, for the test.
    pub inner: MemoryInbox,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    begun: AtomicUsize,
    known: AtomicUsize,
    committed: AtomicUsize,
    /// When a delivery was told that it is in progress, or stale.
    in_progress: Mutex<Vec<Instant>>,
    stale: Mutex<Vec<Instant>>,
    refuse_begin: AtomicUsize,
    refuse_commit: AtomicUsize,
}

impl Watched {
    /// The next so many calls fail.
    pub fn refuse(&self, begins: usize, commits: usize) {
        self.log.refuse_begin.store(begins, Ordering::SeqCst);
        self.log.refuse_commit.store(commits, Ordering::SeqCst);
    }

    /// How many deliveries came.
    pub fn begun(&self) -> usize {
        self.log.begun.load(Ordering::SeqCst)
    }

    /// How many of them were of events that had been handled.
    pub fn known(&self) -> usize {
        self.log.known.load(Ordering::SeqCst)
    }

    pub fn committed(&self) -> usize {
        self.log.committed.load(Ordering::SeqCst)
    }

    /// When deliveries were told that they are in progress.
    pub fn in_progress(&self) -> Vec<Instant> {
        self.log.in_progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn stale(&self) -> Vec<Instant> {
        self.log.stale.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn take_one(count: &AtomicUsize) -> Result<(), InboxError> {
    match count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
        Ok(_) => Err(InboxError::Unavailable("it fails, as this test wants it to".into())),
        Err(_) => Ok(()),
    }
}

impl Inbox for Watched {
    type Guard = WatchedGuard;

    async fn begin(&self, delivery: &Delivery) -> Result<Entry<WatchedGuard>, InboxError> {
        self.log.begun.fetch_add(1, Ordering::SeqCst);
        take_one(&self.log.refuse_begin)?;
        let note = |list: &Mutex<Vec<Instant>>| {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        };
        Ok(match self.inner.begin(delivery).await? {
            Entry::First(guard) => Entry::First(WatchedGuard { guard, log: self.log.clone() }),
            Entry::InProgress(remaining) => {
                note(&self.log.in_progress);
                Entry::InProgress(remaining)
            }
            Entry::AlreadyProcessed => {
                self.log.known.fetch_add(1, Ordering::SeqCst);
                Entry::AlreadyProcessed
            }
            Entry::Stale { seen } => {
                note(&self.log.stale);
                Entry::Stale { seen }
            }
        })
    }

    async fn check_and_mark_processed(
        &self,
        consumer: &ConsumerName,
        event: Uuid,
        ttl: Duration,
    ) -> Result<bool, InboxError> {
        self.inner.check_and_mark_processed(consumer, event, ttl).await
    }
}

pub struct WatchedGuard {
    guard: MemoryGuard,
    log: Arc<Log>,
}

impl Guard for WatchedGuard {
    async fn commit(self) -> Result<(), InboxError> {
        take_one(&self.log.refuse_commit)?;
        self.guard.commit().await?;
        self.log.committed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn release(self) -> Result<(), InboxError> {
        self.guard.release().await
    }
}
