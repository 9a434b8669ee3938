//! Where messages go in a benchmark: into the ledger, and for one scenario to a real sink first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::{BatchFor, ClaimedMessage, Outcome, Sink};
use postrider_sinks::Binding;

use super::ledger::Ledger;
use super::scenario::Parameters;
use crate::config;
use crate::exit::Failure;

/// What messages are called at a broker.
#[allow(dead_code)] // in a build without brokers
const DESTINATION: &str = "postrider.bench";

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

/// The sink at an address, with the settings that it has by default.
pub async fn at(address: &str) -> Result<Arc<dyn Sink>, Failure> {
    let (sink, destination) = configured(address)?;
    let said = |problem: &dyn std::fmt::Display| Failure::usage(format!("--sink: {problem}"));
    let destination = destination.parse().map_err(|problem| said(&problem))?;
    let client = sink.config().client("bench").map_err(|problem| said(&problem))?;
    let bound = client.bind(Binding::to(destination)).map_err(|problem| said(&problem))?;
    bound.ready().await.map_err(|why| Failure::failed(format!("the sink does not answer: {why}")))?;
    Ok(bound)
}

#[allow(unused_variables)] // in a build without brokers
fn configured(address: &str) -> Result<(config::Sink, &str), Failure> {
    let owned = || vec![address.to_owned()];
    match address.split_once("://").map_or("", |(scheme, _)| scheme) {
        #[cfg(feature = "http")]
        "http" | "https" => {
            let mut http = postrider_sinks::HttpConfig::default();
            http.allow_addresses = vec!["127.0.0.0/8".into(), "::1".into()];
            Ok((config::Sink::Http(Box::new(http)), address))
        }
        #[cfg(feature = "nats")]
        "nats" | "tls" => {
            let mut nats = postrider_sinks::NatsConfig::default();
            nats.servers = owned();
            Ok((config::Sink::Nats(Box::new(nats)), DESTINATION))
        }
        #[cfg(feature = "amqp")]
        "amqp" | "amqps" => {
            let mut amqp = postrider_sinks::AmqpConfig::default();
            amqp.addresses = owned();
            Ok((config::Sink::Amqp(Box::new(amqp)), DESTINATION))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            let mut redis = postrider_sinks::RedisConfig::default();
            redis.urls = owned();
            Ok((config::Sink::Redis(Box::new(redis)), DESTINATION))
        }
        #[cfg(feature = "kafka")]
        "kafka" => {
            let mut kafka = postrider_sinks::KafkaConfig::default();
            kafka.brokers = vec![address.trim_start_matches("kafka://").trim_end_matches('/').to_owned()];
            Ok((config::Sink::Kafka(Box::new(kafka)), DESTINATION))
        }
        _ => Err(Failure::usage(
            "--sink is the address of a sink that this binary has: http://…, nats://…, amqp://…, redis://… or kafka://HOST:PORT; \
             its subject, queue, stream or topic is postrider.bench, and must be there",
        )),
    }
}
