//! From a transaction to a consumer in another language: every byte and every header.
#![cfg(feature = "nats")]

use std::sync::Arc;

use postrider_sinks::{NatsConfig, NatsSink};
use testkit::brokers::journey::{COUNT, Consumer, travel};
use testkit::brokers::nats::Nats;

#[tokio::test(flavor = "multi_thread")]
async fn all_that_was_enqueued_is_read_by_the_python_client() {
    let server = Nats::builder().line("max_payload: 2MB").start().await.expect("NATS");
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let stream = async_nats::jetstream::stream::Config {
        name: "SHOP".into(),
        subjects: vec!["shop.>".into()],
        ..Default::default()
    };
    context.create_stream(stream).await.expect("a stream");
    let mut config = NatsConfig::default();
    config.servers = vec![server.url()];
    config.stream = Some("SHOP".into());
    let sink = NatsSink::new(&config, "shop.{topic}".parse().expect("a destination")).expect("a sink");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/nats.py");
    let lines = travel(Arc::new(sink), 999_000, Consumer::new(script, [server.url(), "SHOP".into()])).await;
    assert_eq!(lines.len(), COUNT, "each once");
    for line in &lines {
        assert_eq!(line["headers"]["Nats-Msg-Id"], line["headers"]["event_id"]);
        assert_eq!(line["subject"], "shop.order.placed");
    }
}
