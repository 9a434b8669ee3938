//! From a transaction on a real database through the dispatcher and Kafka to a Python consumer: every byte and header.
#![cfg(feature = "kafka")]

mod kafka_support;

use std::sync::Arc;

use kafka_support::Scene;
use postrider_sinks::kafka::Compression;
use testkit::brokers::journey::{Consumer, travel};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_byte_for_byte_at_a_python_consumer() {
    let scene = Scene::new(3).await;
    let mut config = scene.config();
    config.compression = Compression::Gzip;
    let client = postrider_sinks::KafkaClient::new(&config).expect("a client");
    let sink = client.sink(scene.topic.parse().expect("a destination")).expect("a sink");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/kafka.py");
    let consumer = Consumer::new(script, [scene.kafka.direct(), scene.topic.clone()]);
    for line in travel(Arc::new(sink), 999_000, consumer).await {
        let headers = &line["headers"];
        assert_eq!(line["key"], headers["key"], "a record without a key has no header of that name");
        let created = OffsetDateTime::parse(headers["created_at"].as_str().expect("text"), &Rfc3339);
        let millis = created.expect("a time").unix_timestamp_nanos() / 1_000_000;
        let stamp = i128::from(line["timestamp"].as_i64().expect("a number"));
        assert_eq!(stamp, millis, "the record's time is that of the transaction");
    }
}
