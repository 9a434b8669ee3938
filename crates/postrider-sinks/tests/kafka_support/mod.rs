//! A topic of its own on a broker of its own, and sinks on it.
#![allow(dead_code)] // each test uses a part of it

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{ClaimedMessage, Outcome, Sink};
use postrider_sinks::kafka::KafkaConfig;
use postrider_sinks::{Binding, Format, SinkConfig};
use testkit::brokers::kafka::{Kafka, Reader};
use testkit::{eventually, sinks};
use uuid::Uuid;

pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Scene {
    pub kafka: Kafka,
    pub topic: String,
    pub reader: Reader,
}

impl Scene {
    pub async fn new(partitions: i32) -> Self {
        let kafka = Kafka::start().await.expect("a broker");
        let topic = format!("postrider-{}", Uuid::new_v4());
        kafka.create_topic(&topic, partitions).await.expect("a topic");
        let reader = kafka.reader(&topic, partitions).expect("a consumer");
        Self { kafka, topic, reader }
    }

    /// Settings for this broker, however busy the machine is.
    pub fn config(&self) -> KafkaConfig {
        config(&self.kafka.address())
    }

    /// The same, for where an answer does not come.
    pub fn impatient(&self) -> KafkaConfig {
        impatient(self.config())
    }

    pub fn sink(&self) -> Arc<dyn Sink> {
        sink(&self.config(), &self.topic, Format::Plain)
    }

    /// The ids that have arrived, in their order.
    pub fn ids(&self) -> Vec<Uuid> {
        let records = self.reader.records();
        records.iter().filter_map(|record| record.headers.get("event_id")?.parse().ok()).collect()
    }

    pub async fn arrived(&self, messages: &[ClaimedMessage]) -> Vec<Uuid> {
        eventually(PATIENCE, || async {
            let ids = self.ids();
            messages.iter().all(|message| ids.contains(&message.id))
        })
        .await;
        self.ids()
    }
}

pub fn config(broker: &str) -> KafkaConfig {
    let mut config = KafkaConfig::default();
    config.brokers = vec![broker.to_owned()];
    config.connect_timeout = Duration::from_secs(30);
    config.timeout = Duration::from_secs(60);
    config
}

pub fn impatient(mut config: KafkaConfig) -> KafkaConfig {
    (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(8));
    config
}

pub fn sink(config: &KafkaConfig, topic: &str, format: Format) -> Arc<dyn Sink> {
    let client = config.client("kafka-test").expect("a client");
    client.bind(Binding::to(topic.parse().expect("a destination")).format(format)).expect("a sink")
}

pub fn messages(count: usize) -> Vec<ClaimedMessage> {
    (0..count).map(sinks::message).collect()
}

pub fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::kind).collect()
}
