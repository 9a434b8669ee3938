//! What all consumers share: one delivery, and what its broker is to be told.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use postrider::inbox::{ConsumerName, Delivery, Entry, Guard, Inbox, InboxError, InvalidDelivery, Wire};

/// What is done with an event.
///
/// An async closure is a handler: `|delivery: &Delivery, body: &[u8]| async move { … }`. Implement the trait to use the
/// guard: that of a SQL inbox has the transaction to write the effect in.
pub trait Handler<G>: Send + Sync {
    /// Why it failed. It goes to the log, so it must not hold payloads or secrets.
    type Error: Display + Send;

    /// Handles an event. After an error it comes again.
    fn handle(
        &self,
        delivery: &Delivery,
        body: &[u8],
        guard: &mut G,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

impl<G, F, Answer, E> Handler<G> for F
where
    G: Send,
    F: Fn(&Delivery, &[u8]) -> Answer + Send + Sync,
    Answer: Future<Output = Result<(), E>> + Send,
    E: Display + Send,
{
    type Error = E;

    fn handle(&self, delivery: &Delivery, body: &[u8], _: &mut G) -> impl Future<Output = Result<(), E>> + Send {
        self(delivery, body)
    }
}

/// What the broker is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the broker waits for it"]
pub enum Answer {
    /// The inbox remembers the event: acknowledge it.
    Handled,
    /// Somebody else has it at the moment. Do not acknowledge; bring it again after this time.
    Busy(Duration),
    /// It failed. Do not acknowledge; bring it again after this time.
    Failed(Duration),
    /// It is not Postrider's: it has no event id. Do not acknowledge; bring it again after this time, or move it out of the way.
    Foreign(Duration),
}

impl Answer {
    /// After which time the event is to come again; nothing if it is to be acknowledged.
    pub fn again_after(self) -> Option<Duration> {
        match self {
            Self::Handled => None,
            Self::Busy(wait) | Self::Failed(wait) | Self::Foreign(wait) => Some(wait),
        }
    }
}

/// How long an event waits until it comes again.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    /// Not sooner, even if a claim is about to run out.
    pub shortest: Duration,
    /// Not later, because a claim is often settled long before it runs out.
    pub longest: Duration,
    /// After a failure.
    pub failed: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { shortest: Duration::from_millis(250), longest: seconds(5), failed: seconds(2) }
    }
}

/// A consumer by its name, with its inbox and its handler.
pub struct Consumer<I, H> {
    name: ConsumerName,
    inbox: I,
    handler: H,
    pause: Pause,
    refuses_older: bool,
}

impl<I, H> Consumer<I, H>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    /// All processes of one consumer have the same name and the same inbox.
    pub fn new(name: ConsumerName, inbox: I, handler: H) -> Self {
        Self { name, inbox, handler, pause: Pause::default(), refuses_older: false }
    }

    /// Pauses differently.
    pub fn pause(mut self, pause: Pause) -> Self {
        self.pause = pause;
        self
    }

    /// Refuses what the relay sent before something newer of the same event. Only where headers cannot be forged: a
    /// webhook's signature does not cover the number of the attempt.
    pub fn refuse_older_attempts(mut self) -> Self {
        self.refuses_older = true;
        self
    }

    /// Which event a message is.
    pub fn read<'a>(&self, wire: Wire, header: impl Fn(&str) -> Option<&'a str>) -> Result<Delivery, InvalidDelivery> {
        match self.refuses_older {
            true => Delivery::read_with_attempt(&self.name, wire, header),
            false => Delivery::read(&self.name, wire, header),
        }
    }

    /// Handles a broker's message, unless it was handled before.
    ///
    /// One without an event id cannot be told from others. It is not ours to throw away, so it comes again, slowly, until
    /// somebody looks at the log and moves it.
    pub async fn on_message<'a>(&self, header: impl Fn(&str) -> Option<&'a str>, body: &[u8]) -> Answer {
        match self.read(Wire::Broker, header) {
            Ok(delivery) => self.on_delivery(&delivery, body).await,
            Err(error) => {
                tracing::error!(consumer = %self.name, %error, "a message cannot be handled; move it out of the way");
                Answer::Foreign(self.pause.longest)
            }
        }
    }

    /// Handles a delivery, unless it was handled before.
    pub async fn on_delivery(&self, delivery: &Delivery, body: &[u8]) -> Answer {
        match self.inbox.begin(delivery).await {
            Ok(Entry::First(guard)) => self.run(delivery, body, guard).await,
            Ok(Entry::AlreadyProcessed) => Answer::Handled,
            // The other delivery may fail, so this one is kept.
            Ok(Entry::InProgress(remaining)) => Answer::Busy(remaining.clamp(self.pause.shortest, self.pause.longest)),
            Ok(Entry::Stale { .. }) => Answer::Busy(self.pause.longest),
            Err(error) => self.failed(delivery, "the inbox does not answer", &error),
        }
    }

    async fn run(&self, delivery: &Delivery, body: &[u8], mut guard: I::Guard) -> Answer {
        // A handler that panics has failed, and takes no other with it. Its text may hold anything, so it is not logged here.
        let handled = AssertUnwindSafe(self.handler.handle(delivery, body, &mut guard)).catch_unwind().await;
        let failure = match handled {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it panicked".to_owned()),
        };
        if let Some(error) = failure {
            if let Err(why) = guard.release().await {
                tracing::debug!(event = %delivery.event, error = %why, "a claim was not released; it runs out");
            }
            return self.failed(delivery, "the handler failed", &error);
        }
        match guard.commit().await {
            Ok(()) => Answer::Handled,
            // Its effect may have happened; that it was handled is not remembered, so it is not acknowledged.
            Err(error @ InboxError::Lost { .. }) => self.failed(delivery, "another delivery took over", &error),
            Err(error) => self.failed(delivery, "the inbox did not remember the event", &error),
        }
    }

    fn failed(&self, delivery: &Delivery, what: &str, error: &dyn Display) -> Answer {
        tracing::warn!(consumer = %self.name, event = %delivery.event, %error, "{what}; it comes again");
        Answer::Failed(self.pause.failed)
    }
}
