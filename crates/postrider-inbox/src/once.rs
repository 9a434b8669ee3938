//! Running a handler once per event.

use std::time::Duration;

use crate::{Delivery, Entry, Guard, Inbox, InboxError};

/// What became of a delivery that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it says whether the message is to be acknowledged"]
pub enum Once<T> {
    /// The handler ran and the event counts as processed.
    Ran(T),
    /// It was handled before; the handler did not run.
    AlreadyProcessed,
    /// Another delivery is being handled; the handler did not run. See [`Entry::InProgress`].
    InProgress(Duration),
    /// A newer attempt has been here; the handler did not run. See [`Entry::Stale`].
    Stale,
}

impl<T> Once<T> {
    /// Whether to acknowledge the message. If not, the broker is to bring it again.
    pub fn may_ack(&self) -> bool {
        matches!(self, Self::Ran(_) | Self::AlreadyProcessed)
    }
}

/// Why an event is not processed. The message is not to be acknowledged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The handler failed; the next delivery runs it again.
    #[error("the handler failed")]
    Handler(#[source] E),
    /// The inbox failed, before or after the handler.
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

/// Handles a delivery unless it was handled before, and remembers it if the handler succeeds.
///
/// The handler gets the guard, because the guard of a SQL inbox has the transaction to write the effect in. If it fails or
/// panics, the event is free for the next delivery.
pub async fn run_once<I, T, E>(
    inbox: &I,
    delivery: &Delivery,
    handler: impl AsyncFnOnce(&mut I::Guard) -> Result<T, E>,
) -> Result<Once<T>, RunError<E>>
where
    I: Inbox,
{
    let mut guard = match inbox.begin(delivery).await? {
        Entry::First(guard) => guard,
        Entry::InProgress(remaining) => return Ok(Once::InProgress(remaining)),
        Entry::AlreadyProcessed => return Ok(Once::AlreadyProcessed),
        Entry::Stale { .. } => return Ok(Once::Stale),
    };
    match handler(&mut guard).await {
        Ok(value) => {
            guard.commit().await?;
            Ok(Once::Ran(value))
        }
        Err(error) => {
            if let Err(why) = guard.release().await {
                tracing::debug!(event = %delivery.event, consumer = %delivery.consumer, error = %why, "a claim was not released; it runs out");
            }
            Err(RunError::Handler(error))
        }
    }
}
