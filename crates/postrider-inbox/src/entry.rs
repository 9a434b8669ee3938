//! The seam: taking a delivery, and what became of it.

use std::future::Future;
use std::time::Duration;

use uuid::Uuid;

use crate::{ConsumerName, Delivery, InboxError};

/// Remembers which events a consumer has handled.
///
/// Any number of processes may use the same inbox at once. Of several deliveries of one event at most one is
/// [`First`](Entry::First) at a time.
pub trait Inbox: Send + Sync {
    /// What a first delivery holds while it is handled.
    type Guard: Guard;

    /// Takes a delivery, or says why it is not to be handled now.
    ///
    /// If its future is dropped, or it fails without an answer, the event may be claimed all the same. Nobody holds that
    /// claim, so it runs out: the next delivery is let in then, and is told that it is in progress before.
    fn begin(&self, delivery: &Delivery) -> impl Future<Output = Result<Entry<Self::Guard>, InboxError>> + Send;

    /// Marks an event as processed for at least `ttl` and answers whether it was so already: one call, before the handler.
    ///
    /// Its one weakness: the event counts as processed although its handler has not run yet. A consumer that dies or fails
    /// in between, or whose call fails or is given up, may have lost it, because the next delivery is taken for a
    /// duplicate. (A mark whose call failed is taken back if the inbox can still be reached.) Use it where that is harmless, and
    /// [`begin`](Self::begin) or [`run_once`](crate::run_once) everywhere else.
    ///
    /// An event that a guard holds at the moment is neither processed nor free; the answer is [`InboxError::InProgress`].
    fn check_and_mark_processed(
        &self,
        consumer: &ConsumerName,
        event: Uuid,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, InboxError>> + Send;
}

/// The right to handle an event. Dropped without [`commit`](Self::commit), also by a panic, it lets the next delivery in.
pub trait Guard: Send {
    /// Remembers the event as processed. Acknowledge the message to the broker after this, and only if it succeeds.
    fn commit(self) -> impl Future<Output = Result<(), InboxError>> + Send;

    /// Lets the next delivery in, as a drop does, and waits until it may come. An error means that it may come later,
    /// once the claim runs out; so does a future that is dropped.
    fn release(self) -> impl Future<Output = Result<(), InboxError>> + Send;
}

/// What an inbox says of a delivery.
#[derive(Debug)]
#[must_use = "a guard that is not kept is released"]
pub enum Entry<G> {
    /// Nobody has handled it. Handle it and commit the guard; acknowledge it then.
    First(G),
    /// Another delivery of the same event is being handled, and its claim runs out after this time at the latest unless it
    /// is extended. Zero means that this is not known. Do not acknowledge: that one may fail. The broker is to bring it
    /// again.
    InProgress(Duration),
    /// It was handled before. Acknowledge it.
    AlreadyProcessed,
    /// A newer attempt of the relay has been here, and this one comes late. Do not acknowledge; once the newer one is
    /// handled, it counts as processed.
    ///
    /// Where the broker limits deliveries, each refusal uses up one of this copy's own. If the newer copy does not come
    /// back (its consumer failed, and its deliveries are used up), this one may end in the dead-letter queue without having
    /// been handled. Watch that queue, or leave the attempt out.
    Stale {
        /// The newest attempt that was seen.
        seen: crate::Attempt,
    },
}

impl<G> Entry<G> {
    /// Whether the message is to be acknowledged as it is, without handling it.
    pub fn is_already_processed(&self) -> bool {
        matches!(self, Self::AlreadyProcessed)
    }

    /// The guard of a first delivery.
    pub fn first(self) -> Option<G> {
        match self {
            Self::First(guard) => Some(guard),
            _ => None,
        }
    }
}
