//! librdkafka's mock cluster, which stores in memory.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use postrider::Sink;
use postrider::sinks::{Binding, KafkaConfig, SinkConfig};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use testkit::brokers::kafka::Kafka;

use super::Parcel;

pub struct Peer {
    broker: Kafka,
    producer: FutureProducer,
}

const TOPIC: &str = "bench";

impl super::Peer for Peer {
    const NAME: &'static str = "kafka";
    const MESSAGES: usize = 200_000;

    async fn start() -> Result<Self> {
        let broker = Kafka::start().await?;
        broker.create_topic(TOPIC, 4).await?;
        let mut config = ClientConfig::new();
        for (name, value) in [
            ("bootstrap.servers", broker.direct().as_str()),
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("linger.ms", "5"),
            ("partitioner", "murmur2_random"),
        ] {
            config.set(name, value);
        }
        Ok(Self { broker, producer: config.create()? })
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = KafkaConfig::default();
        config.brokers = vec![self.broker.direct()];
        Ok(config.client("bench")?.bind(Binding::to(TOPIC.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        for chunk in parcels.chunks(10_000) {
            let mut reports = Vec::with_capacity(chunk.len());
            for parcel in chunk {
                let headers = OwnedHeaders::new_with_capacity(parcel.headers.len());
                let headers = parcel
                    .headers
                    .iter()
                    .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(value) }));
                let mut record = FutureRecord::to(TOPIC).key(&parcel.key).payload(&parcel.body).headers(headers);
                loop {
                    match self.producer.send_result(record) {
                        Ok(report) => break reports.push(report),
                        Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                            record = again;
                            tokio::task::yield_now().await;
                        }
                        Err((error, _)) => return Err(error.into()),
                    }
                }
            }
            for report in try_join_all(reports).await? {
                report.map_err(|(error, _)| error)?;
            }
        }
        Ok(())
    }
}
