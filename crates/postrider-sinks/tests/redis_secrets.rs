//! S16, S17: passwords and payloads are in no log, error, outcome or debug output, whatever goes wrong.
#![cfg(feature = "redis")]

use std::time::Duration;

use postrider_core::{Payload, Sink};
use postrider_sinks::setting::Secret;
use postrider_sinks::{RedisClient, RedisConfig};
use testkit::brokers::redis::Redis;
use testkit::log::Log;
use testkit::sinks::{message, of_payload};

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_no_canary_is_seen() {
    let log = Log::listen();

    let server = Redis::builder().password("canary-password").start().await.expect("Redis");
    server.command(&["set", "shop:clash", "canary-value"]).await.expect("set");
    let mut seen = Vec::new();
    for (url, password, cluster) in [
        (server.url(), "canary-password", false),
        (server.url(), "canary-wrong", false),
        (server.url(), "canary-password", true),
        ("redis://127.0.0.1:1".into(), "canary-password", false),
        ("redis://127.0.0.1:1".into(), "canary-password", true),
    ] {
        let mut config = RedisConfig::default();
        (config.urls, config.cluster) = (vec![url], cluster);
        config.password = Some(Secret::new(password));
        (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(2));
        let client = RedisClient::new(&config).expect("a client");
        let sink = client.sink("shop:{topic}".parse().expect("a destination")).expect("a sink");
        let mut secret = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
        secret.headers.insert("colour".into(), "canary-header".into());
        let (mut clash, mut poison) = (message(1), message(1));
        (clash.topic, poison.topic) = ("clash".into(), "canary\n".into());
        let outcomes = sink.publish(&[secret, clash, poison]).await;
        seen.push(format!("{outcomes:?} {sink:?} {client:?} {config:?} {:?}", sink.ready().await));
        seen.push(serde_json::to_string(&config).expect("it can be shown"));
    }
    let mut wrong = RedisConfig::default();
    wrong.urls = vec!["redis://canary-user:canary-password@127.0.0.1".into()];
    seen.push(format!("{:?}", RedisClient::new(&wrong).expect_err("refused")));
    for text in &seen {
        assert!(!text.contains("canary"), "{text}");
    }
    let log = log.text();
    assert!(log.contains("connected to Redis"), "the log was listened to: {log}");
    assert_eq!(log.lines().find(|line| line.contains("canary")), None, "in the log");
}
