//! The seam to a destination.

use std::future::Future;

use async_trait::async_trait;

use crate::outcome::{Outcome, PublishError};
use crate::store::ClaimedMessage;

/// Where messages go. A sink knows no store; it says one [`Outcome`] per message and nothing else.
///
/// A publish may be cut off at the dispatcher's time limit, and the same message may come again with the
/// same id: the contract is at least once.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// The most messages in one call of [`publish`](Self::publish).
    fn max_batch(&self) -> usize {
        1
    }

    /// The most calls of [`publish`](Self::publish) that are of use at the same time, if there is such a number. A
    /// dispatcher makes no more, however many it is allowed.
    fn concurrency(&self) -> Option<usize> {
        None
    }

    /// Which batch a message belongs to. A sink that leads to several others keeps their messages apart by it, and
    /// their limits.
    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        let _ = message;
        BatchFor { key: 0, limit: self.max_batch() }
    }

    /// Whether this sink keeps the order of messages with one key (see [`Order::Key`]): in one call of
    /// [`publish`](Self::publish) it sends those of a namespace and key one after the other, in the order of the batch,
    /// and none after one that was not delivered; it answers [`Outcome::Busy`] for what it did not send. A dispatcher
    /// never hands out one key in two calls at the same time, and to a sink that keeps no order not twice in one call.
    ///
    /// [`Order::Key`]: crate::store::Order::Key
    fn keeps_order(&self) -> bool {
        false
    }

    /// The same for one message, of a sink that leads to several others.
    fn keeps_order_for(&self, message: &ClaimedMessage) -> bool {
        let _ = message;
        self.keeps_order()
    }

    /// Whether this sink leaves destinations that are down alone by itself, and answers [`Outcome::Busy`] for their
    /// messages. Then the dispatcher's breaker stays out of it: claiming never stops for one of several destinations.
    fn minds_outages(&self) -> bool {
        false
    }

    /// Publishes a batch and answers one outcome per message, in the same order. A message that fails
    /// fails alone.
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome>;

    /// Whether the destination answers. Asked while the breaker is open, before messages are risked on it;
    /// the error text is for the operator.
    async fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Which messages share a call of [`Sink::publish`], and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFor {
    /// Only messages for which this is the same share a batch.
    pub key: u64,
    /// The most messages in a batch of this key.
    pub limit: usize,
}

/// Makes a sink of a closure: `Ok` is delivered, an error says whether to retry (see [`PublishError`]).
///
/// ```
/// use postrider_core::{PublishError, callback};
///
/// let sink = callback(|message| async move {
///     println!("{} {}", message.topic, message.id);
///     Ok::<(), PublishError>(())
/// });
/// # let _ = sink;
/// ```
pub fn callback<F, Answer, E>(publish: F) -> impl Sink
where
    F: Fn(ClaimedMessage) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<PublishError> + Send + 'static,
{
    Callback(publish)
}

struct Callback<F>(F);

#[async_trait]
impl<F, Answer, E> Sink for Callback<F>
where
    F: Fn(ClaimedMessage) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<PublishError> + Send + 'static,
{
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for message in batch {
            outcomes.push(match (self.0)(message.clone()).await {
                Ok(()) => Outcome::Accepted,
                Err(error) => error.into().into(),
            });
        }
        outcomes
    }
}
