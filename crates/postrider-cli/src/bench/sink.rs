//! Where messages go in a benchmark: into the ledger, and in the scenarios of sinks to a real one first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider::{BatchFor, ClaimedMessage, Outcome, Sink};

use super::ledger::Ledger;
use super::scenario::Parameters;

/// Notes every message and does nothing else, or nothing for a while.
pub struct Noted {
    ledger: Arc<Ledger>,
    batch: usize,
    delay: Duration,
}

impl Noted {
    pub fn new(ledger: Arc<Ledger>, parameters: &Parameters) -> Self {
        Self { ledger, batch: parameters.sink_batch, delay: parameters.delay() }
    }
}

#[async_trait]
impl Sink for Noted {
    fn max_batch(&self) -> usize {
        self.batch
    }

    /// It notes the messages of a call one after the other.
    fn keeps_order(&self) -> bool {
        true
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        batch.iter().for_each(|message| self.ledger.note(message.payload.as_bytes()));
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        vec![Outcome::Accepted; batch.len()]
    }
}

/// A real sink, whose deliveries are noted.
pub struct Watched {
    pub ledger: Arc<Ledger>,
    pub sink: Arc<dyn Sink>,
}

#[async_trait]
impl Sink for Watched {
    fn max_batch(&self) -> usize {
        self.sink.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.sink.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.sink.batch_for(message)
    }

    fn keeps_order(&self) -> bool {
        self.sink.keeps_order()
    }

    fn minds_outages(&self) -> bool {
        self.sink.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let outcomes = self.sink.publish(batch).await;
        let delivered = batch.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_delivered());
        delivered.for_each(|(message, _)| self.ledger.note(message.payload.as_bytes()));
        outcomes
    }

    async fn ready(&self) -> Result<(), String> {
        self.sink.ready().await
    }
}

/// A real sink, of which is known how many messages it was handed.
pub struct Counted {
    sink: Arc<dyn Sink>,
    handed: AtomicU32,
}

impl Counted {
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self { sink, handed: AtomicU32::new(0) }
    }

    /// A message that was sent again counts again.
    pub fn handed(&self) -> u32 {
        self.handed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sink for Counted {
    fn max_batch(&self) -> usize {
        self.sink.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.sink.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.sink.batch_for(message)
    }

    fn keeps_order(&self) -> bool {
        self.sink.keeps_order()
    }

    fn minds_outages(&self) -> bool {
        self.sink.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        self.handed.fetch_add(u32::try_from(batch.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.sink.publish(batch).await
    }

    async fn ready(&self) -> Result<(), String> {
        self.sink.ready().await
    }
}
