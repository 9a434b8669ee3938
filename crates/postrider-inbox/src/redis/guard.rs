//! The claim of a delivery while its handler runs.
//!
//! A task extends it every third of its time. An extension that fails because Redis cannot be reached is tried again until
//! the claim has run out by the guard's own monotonic clock, which began before Redis' did; then, or when Redis says that
//! another has it, the claim is lost. A handler may watch for that and stop early; it need not, because the commit decides.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::inbox::why;
use super::script::{Claim, Verbs};
use crate::{Guard, InboxError};

/// The time between two tries to extend, at least and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The right to handle an event that a [`RedisInbox`](super::RedisInbox) gave.
///
/// Dropped, it is released by a task; without a runtime, the claim runs out instead.
pub struct RedisGuard {
    verbs: Arc<Verbs>,
    claim: Claim,
    lost: watch::Receiver<bool>,
    /// The task that extends the claim; none if there is no claim, because Redis could not be reached.
    keeper: Option<AbortHandle>,
    is_settled: bool,
}

impl RedisGuard {
    /// A guard whose claim began at `since` or later.
    pub(super) fn keeping(verbs: &Arc<Verbs>, claim: Claim, since: Instant) -> Self {
        let (sender, lost) = watch::channel(false);
        let keeper = tokio::spawn(keep(verbs.clone(), claim.clone(), since, sender)).abort_handle();
        Self { verbs: verbs.clone(), claim, lost, keeper: Some(keeper), is_settled: false }
    }

    /// A guard that guards nothing.
    pub(super) fn unguarded(verbs: &Arc<Verbs>, claim: Claim) -> Self {
        let (_, lost) = watch::channel(false);
        Self { verbs: verbs.clone(), claim, lost, keeper: None, is_settled: false }
    }

    /// Whether nothing keeps other deliveries away, because Redis could not be reached and
    /// [`Unreachable::Proceed`](super::Unreachable::Proceed) is set.
    pub fn is_unguarded(&self) -> bool {
        self.keeper.is_none()
    }

    /// Whether another delivery may handle the event by now.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until another delivery may handle the event, so that a handler can stop early.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            if lost.wait_for(|is_lost| *is_lost).await.is_err() {
                // The guard is settled, or there is no claim: nothing can be lost any more.
                pending().await
            }
        }
    }

    fn stop_keeping(&self) {
        self.keeper.iter().for_each(AbortHandle::abort);
    }
}

impl Guard for RedisGuard {
    async fn commit(mut self) -> Result<(), InboxError> {
        // The effect has happened. If this fails or is given up, nobody is to hurry to repeat it: the claim runs out. Until
        // then it is extended, also while the commit is tried again.
        self.is_settled = true;
        let (event, consumer) = (self.claim.event, &self.claim.consumer);
        let answer = match self.is_unguarded() {
            true => self.verbs.confirm(&self.claim).await,
            false => self.verbs.confirm_patiently(&self.claim).await,
        };
        match answer.map_err(InboxError::from) {
            Ok(true) => Ok(()),
            Ok(false) => Err(InboxError::Lost { event }),
            Err(error @ InboxError::Unavailable(_)) if self.is_unguarded() => {
                tracing::warn!(%event, %consumer, why = %why(&error), "an event was handled, but is not remembered");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn release(mut self) -> Result<(), InboxError> {
        self.is_settled = true;
        self.stop_keeping();
        match self.verbs.release(&self.claim).await? {
            true => Ok(()),
            false => Err(InboxError::Lost { event: self.claim.event }),
        }
    }
}

impl Drop for RedisGuard {
    fn drop(&mut self) {
        self.stop_keeping();
        let Some(runtime) = (!self.is_settled).then(Handle::try_current).and_then(Result::ok) else { return };
        let (verbs, claim) = (self.verbs.clone(), self.claim.clone());
        runtime.spawn(async move {
            if let Err(problem) = verbs.release(&claim).await {
                let (event, consumer) = (claim.event, &claim.consumer);
                tracing::debug!(%event, %consumer, why = %problem, "a claim was not released; it runs out");
            }
        });
    }
}

/// Extends a claim until its guard is gone or it is lost.
async fn keep(verbs: Arc<Verbs>, claim: Claim, since: Instant, lost: watch::Sender<bool>) {
    let length = verbs.settings.claim;
    let pause = (length / 10).clamp(PAUSES.0, PAUSES.1);
    let mut until = since + length;
    let mut next = since + length / 3;
    let (event, consumer) = (claim.event, &claim.consumer);
    loop {
        sleep_until(next).await;
        let asked = Instant::now();
        // After a stall it is late, but perhaps nobody has noticed.
        let limit = if asked < until { until } else { asked + verbs.settings.response_timeout };
        match timeout_at(limit, verbs.extend(&claim)).await {
            Ok(Ok(true)) => {
                until = asked + length;
                next = asked + length / 3;
                continue;
            }
            Ok(Ok(false)) => {
                tracing::warn!(%event, %consumer, "a claim is lost: another delivery has taken the event");
                break;
            }
            Ok(Err(problem)) => tracing::debug!(%event, %consumer, why = %problem, "a claim was not extended"),
            Err(_) => {}
        }
        if Instant::now() >= until {
            tracing::warn!(%event, %consumer, "a claim is lost: Redis could not be reached to extend it");
            break;
        }
        next = until.min(Instant::now() + pause);
    }
    metrics::counter!("postrider_inbox_lost_total", "consumer" => consumer.to_string()).increment(1);
    lost.send_replace(true);
}

impl fmt::Debug for RedisGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisGuard")
            .field("consumer", &self.claim.consumer)
            .field("event", &self.claim.event)
            .field("is_unguarded", &self.is_unguarded())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
