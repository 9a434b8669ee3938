//! From a transaction to a consumer in another language: every byte and every header.
#![cfg(feature = "redis")]

use std::sync::Arc;

use postrider_sinks::{RedisConfig, RedisSink};
use testkit::brokers::journey::{COUNT, Consumer, travel};
use testkit::brokers::redis::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn all_that_was_enqueued_is_read_by_the_python_client() {
    let server = Redis::start().await.expect("Redis");
    let mut config = RedisConfig::default();
    config.urls = vec![server.url()];
    let sink = RedisSink::new(&config, "shop".parse().expect("a destination")).expect("a sink");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/redis.py");
    let lines =
        travel(Arc::new(sink), 999_000, Consumer::new(script, [server.port().to_string(), "shop".into()])).await;
    assert_eq!(lines.len(), COUNT, "each once");
}
