//! Waking up: how a sleeping dispatcher learns of a commit.
//!
//! The rule that no wake-up is lost: a dispatcher sleeps only after it *armed* its bell and then *looked
//! again* and found nothing due. From the moment the bell is armed, every producer whose transaction commits
//! later rings it. While a producer's open transaction makes arming unsafe, [`Doorbell::arm`] answers
//! [`Armed::Busy`] and the dispatcher polls briefly. The poll interval stays as a safety net only.

use async_trait::async_trait;

use crate::store::StoreError;

/// The answer to arming a bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// Whoever commits from now on rings: look once more, then sleep.
    Yes,
    /// A producer's transaction is open that would not ring: look again soon.
    Busy,
    /// There is no bell here (a transaction pooler in between, say): poll.
    Never,
}

/// A dispatcher's own bell on one store and scope.
#[async_trait]
pub trait Doorbell: Send {
    /// Gets ready to sleep.
    async fn arm(&mut self) -> Result<Armed, StoreError>;

    /// Says that the dispatcher is awake, so that producers need not ring.
    async fn disarm(&mut self) -> Result<(), StoreError>;

    /// Waits for a ring. Also ends, with an error, when the bell may have missed one.
    ///
    /// Must be safe to drop half way without losing a ring.
    async fn wait(&mut self) -> Result<(), StoreError>;
}
