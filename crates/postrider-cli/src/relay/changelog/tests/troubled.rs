//! A changelog whose database has its troubles when a test says so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider_changelog::{After, ChangelogError, ConsumerState, Cursor, Lease, Page, Reader};
use uuid::Uuid;

use super::Arc;

#[derive(Debug)]
pub struct Troubled {
    inner: Arc<dyn Reader>,
    /// Whether no page can be read.
    pub refuses: AtomicBool,
    /// How often a page was asked for.
    pub lists: AtomicUsize,
    /// How many of the next positions are written, and the answers lost.
    pub lost_answers: AtomicUsize,
    /// How many of the next positions and renewals do not get through.
    pub away: AtomicUsize,
    /// How often the lease was renewed, with a position or without.
    pub renewals: AtomicUsize,
}

impl Troubled {
    pub fn new(inner: Arc<dyn Reader>) -> Self {
        Self {
            inner,
            refuses: AtomicBool::new(false),
            lists: AtomicUsize::new(0),
            lost_answers: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            renewals: AtomicUsize::new(0),
        }
    }
}

fn is_next(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl Reader for Troubled {
    async fn list(&self, after: After, limit: u32) -> Result<Page, ChangelogError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(ChangelogError::Failed("permission denied".into())),
            false => self.inner.list(after, limit).await,
        }
    }

    async fn head(&self) -> Result<Cursor, ChangelogError> {
        self.inner.head().await
    }

    async fn acquire(
        &self,
        consumer: &str,
        owner: Uuid,
        lease: Duration,
        first: After,
    ) -> Result<Option<Lease>, ChangelogError> {
        self.inner.acquire(consumer, owner, lease, first).await
    }

    async fn advance(&self, lease: &Lease, to: Option<&Cursor>, length: Duration) -> Result<(), ChangelogError> {
        if is_next(&self.away) {
            return Err(ChangelogError::Unavailable("away".into()));
        }
        self.inner.advance(lease, to, length).await?;
        if to.is_some() && is_next(&self.lost_answers) {
            return Err(ChangelogError::Unavailable("the answer was lost".into()));
        }
        self.renewals.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn hold_back(&self, lease: &Lease, why: &str, length: Duration) -> Result<(), ChangelogError> {
        self.inner.hold_back(lease, why, length).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), ChangelogError> {
        self.inner.release(lease).await
    }

    async fn consumers(&self) -> Result<Vec<ConsumerState>, ChangelogError> {
        self.inner.consumers().await
    }

    async fn reset(&self, consumer: &str, to: After) -> Result<bool, ChangelogError> {
        self.inner.reset(consumer, to).await
    }

    async fn forget(&self, consumer: &str) -> Result<bool, ChangelogError> {
        self.inner.forget(consumer).await
    }
}
