//! A consumer: duplicates are possible, so consumers must be idempotent. Redis remembers what was handled, under
//! `pf:evt:processed:<consumer>:<event id>`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use postrider::EventEnvelope;
use postrider::inbox::{ConsumerName, Delivery, Inbox, Once, RedisInbox, RunError, Wire, run_once};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// What keys in Redis begin with.
pub const PREFIX: &str = "pf:evt:processed";

/// Events that one consumer handles at most before it looks for others.
const AT_ONCE: usize = 50;
/// The pause when a subscription has nothing, or what it had could not be handled.
const PAUSE: Duration = Duration::from_millis(100);

/// An event as it comes from a subscription.
pub struct Arrival {
    /// By what it is acknowledged.
    pub ack: String,
    /// Its attributes, with the event's id.
    pub attributes: BTreeMap<String, String>,
    /// The envelope.
    pub body: Vec<u8>,
}

/// A subscription to the topic: what a client of Pub/Sub offers.
#[async_trait]
pub trait Subscription: Send + Sync {
    /// Takes what is there, up to so many.
    async fn pull(&self, most: usize) -> Result<Vec<Arrival>>;
    /// These do not come again.
    async fn acknowledge(&self, acks: Vec<String>) -> Result<()>;
    /// These come again.
    async fn give_back(&self, acks: Vec<String>) -> Result<()>;
}

/// One consumer of events; its processes share a name.
pub struct Consumer {
    name: ConsumerName,
    inbox: RedisInbox,
    keep: Duration,
}

impl Consumer {
    /// Connects to Redis. An event is remembered for as long as the settings say, which must be longer than it may be delivered
    /// again.
    pub async fn connect(name: &str, redis: &str, settings: &Settings) -> Result<Self> {
        let keep = settings.idempotency_ttl;
        let inbox = RedisInbox::builder(redis).prefix(PREFIX).keep(keep).connect().await?;
        Ok(Self { name: ConsumerName::new(name)?, inbox, keep })
    }

    /// Pulls and handles until it is told to stop. Only what [`Once::may_ack`] allows is acknowledged: an event whose handler
    /// failed comes again, and so does one that another process is at.
    pub async fn run<E>(
        &self,
        subscription: &dyn Subscription,
        stop: CancellationToken,
        mut handler: impl AsyncFnMut(EventEnvelope<Value>) -> Result<(), E>,
    ) -> Result<()>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        while !stop.is_cancelled() {
            let arrived = subscription.pull(AT_ONCE).await.context("cannot pull")?;
            let (mut handled, mut failed) = (Vec::new(), Vec::new());
            for event in arrived {
                match self.handle(&event.attributes, &event.body, async |event| handler(event).await).await {
                    Ok(once) if once.may_ack() => handled.push(event.ack),
                    Ok(_) => failed.push(event.ack),
                    Err(error) => {
                        let event_id = event.attributes.get("event_id");
                        tracing::warn!(event_id, %error, "an event is not handled; it will come again");
                        failed.push(event.ack);
                    }
                }
            }
            let idle = handled.is_empty();
            subscription.acknowledge(handled).await.context("cannot acknowledge")?;
            subscription.give_back(failed).await.context("cannot give back")?;
            if idle {
                let _stopped = tokio::time::timeout(PAUSE, stop.cancelled()).await;
            }
        }
        Ok(())
    }

    /// Handles an event that was not handled before. It is claimed first and marked only after the handler has succeeded, so
    /// nothing is lost if that fails. Acknowledge the message if the answer says so ([`Once::may_ack`]).
    pub async fn handle<E>(
        &self,
        attributes: &BTreeMap<String, String>,
        body: &[u8],
        handler: impl AsyncFnOnce(EventEnvelope<Value>) -> Result<(), E>,
    ) -> Result<Once<()>>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let event: EventEnvelope<Value> = serde_json::from_slice(body)?;
        let handled = run_once(&self.inbox, &self.delivery(attributes)?, async |_| handler(event).await).await;
        handled.map_err(|error| match error {
            RunError::Handler(error) => error.into(),
            other => anyhow::anyhow!("the inbox failed: {other}"),
        })
    }

    /// The one call, where the loss of an event is harmless: marks it, and answers whether it was processed already.
    pub async fn check_and_mark_processed(&self, attributes: &BTreeMap<String, String>) -> Result<bool> {
        let event = self.delivery(attributes)?.event;
        Ok(self.inbox.check_and_mark_processed(&self.name, event, self.keep).await?)
    }

    /// The event's id is an attribute of every message.
    fn delivery(&self, attributes: &BTreeMap<String, String>) -> Result<Delivery> {
        Ok(Delivery::read(&self.name, Wire::Broker, |name| attributes.get(name).map(String::as_str))?)
    }
}
