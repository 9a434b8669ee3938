//! From a transaction to a consumer in another language: every byte and every header.
#![cfg(feature = "redis")]

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_sinks::{RedisConfig, RedisSink};
use serde_json::Value;
use testkit::brokers::redis::Redis;
use testkit::brokers::{journey, venv};
use testkit::sinks::Arrival;

#[tokio::test(flavor = "multi_thread")]
async fn all_that_was_enqueued_is_read_by_the_python_client() {
    let server = Redis::start().await.expect("Redis");
    let mut config = RedisConfig::default();
    config.urls = vec![server.url()];
    let sink = RedisSink::new(&config, "shop".parse().expect("a destination")).expect("a sink");
    let sent = journey::deliver(sink).await;

    let (port, count) = (server.port().to_string(), sent.len().to_string());
    let read = move || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers/redis.py");
        venv::run(&script, &[&port, "shop", &count])
    };
    let lines = tokio::task::spawn_blocking(read).await.expect("it ended").expect("it worked");
    let mut arrived = Vec::new();
    for line in &lines {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let headers = line["headers"].as_object().expect("headers").iter();
        let headers = headers.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()));
        let headers: BTreeMap<String, String> = headers.collect();
        let body = STANDARD.decode(line["body"].as_str().expect("base64")).expect("base64");
        arrived.push(Arrival { body, key: headers.get("key").cloned(), headers });
    }
    assert_eq!(lines.len(), sent.len(), "each once");
    journey::compare(&sent, &arrived);
}
