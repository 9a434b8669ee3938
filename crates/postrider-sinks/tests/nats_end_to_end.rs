//! From a transaction to a consumer in another language: every byte and every header.
#![cfg(feature = "nats")]

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use postrider_sinks::{NatsConfig, NatsSink};
use serde_json::Value;
use testkit::brokers::nats::Nats;
use testkit::brokers::{journey, venv};
use testkit::sinks::Arrival;

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
    let sent = journey::deliver(sink).await;

    let (url, count) = (server.url(), sent.len().to_string());
    let read = move || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers/nats.py");
        venv::run(&script, &[&url, "SHOP", &count])
    };
    let lines = tokio::task::spawn_blocking(read).await.expect("it ended").expect("it worked");
    let mut arrived = Vec::new();
    for line in &lines {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let headers = line["headers"].as_object().expect("headers").iter();
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().expect("text").into_owned();
        let headers = headers.map(|(name, value)| (decoded(name), decoded(value.as_str().expect("text"))));
        let headers: BTreeMap<String, String> = headers.collect();
        let body = STANDARD.decode(line["body"].as_str().expect("base64")).expect("base64");
        assert_eq!(headers["Nats-Msg-Id"], headers["event_id"]);
        assert_eq!(line["subject"], format!("shop.{}", headers["topic"]));
        arrived.push(Arrival { body, key: headers.get("key").cloned(), headers });
    }
    assert_eq!(lines.len(), sent.len(), "each once");
    journey::compare(&sent, &arrived);
}
