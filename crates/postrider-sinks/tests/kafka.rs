//! The sink kafka keeps the promises of every sink.
#![cfg(feature = "kafka")]

mod kafka_support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kafka_support::{Scene, sink};
use postrider_core::{ClaimedMessage, Payload, Sink};
use postrider_sinks::Format;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use testkit::sinks::{Ability, Arrival, Broker, of_payload};

struct OnKafka(Scene);

#[async_trait]
impl Broker for OnKafka {
    async fn start() -> Self {
        Self(Scene::new(3).await)
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = self.0.config();
        // Less than five seconds it takes for a mistake.
        config.timeout = patience.max(Duration::from_secs(5));
        config.connect_timeout = patience;
        sink(&config, &self.0.topic, format)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let records = self.0.reader.records().into_iter();
        records
            .map(|record| Arrival {
                body: record.value.expect("an empty value is not the same as none"),
                headers: record.headers,
                key: record.key.map(text),
            })
            .collect()
    }

    async fn stop(&self) {
        self.0.kafka.stop().expect("it stops");
    }

    async fn restart(&self) {
        self.0.kafka.restart().expect("it starts");
    }

    async fn obstruct(&self) {
        let errors = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1_000];
        self.0.kafka.fail(RDKafkaApiKey::Produce, errors).expect("it fails");
    }

    async fn clear(&self) {
        self.0.kafka.forgive(RDKafkaApiKey::Produce).expect("it works");
    }

    async fn silence(&self) {
        self.0.kafka.silence().expect("it is silent");
    }

    async fn speak(&self) {
        self.0.kafka.speak().expect("it speaks");
    }

    fn poison(&self) -> ClaimedMessage {
        of_payload(Payload::Bytes(vec![b'x'; self.too_large()]))
    }

    fn too_large(&self) -> usize {
        1_100_000
    }

    fn cannot(&self, ability: Ability) -> Option<&'static str> {
        let faulty = matches!(ability, Ability::Obstruct | Ability::Silence | Ability::Restart);
        (faulty && self.0.kafka.is_real()).then_some("a real broker has no faults on command")
    }
}

testkit::sink_conformance!(OnKafka);
