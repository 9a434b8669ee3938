//! S16, S17: passwords, tokens and payloads are in no log, error, outcome or debug output, whatever goes wrong.
#![cfg(feature = "nats")]

use std::time::Duration;

use postrider_core::{Payload, Sink};
use postrider_sinks::setting::Secret;
use postrider_sinks::{NatsClient, NatsConfig};
use testkit::brokers::nats::Nats;
use testkit::log::Log;
use testkit::sinks::{message, of_payload};

/// The library prints the headers that it writes at its most talkative: that is documented, and nothing else is.
const HEADERS: &str = "canary-header";

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_no_canary_is_seen() {
    let log = Log::listen();

    let users = "authorization { users: [ { user: \"relay\", password: \"canary-password\" } ] }";
    let by_password = Nats::builder().line(users).start().await.expect("NATS");
    let by_token = Nats::builder().line("authorization { token: \"canary-token\" }").start().await.expect("NATS");
    let mut configs = Vec::new();
    for (server, password, token) in [
        (by_password.url(), Some("canary-password"), None),
        (by_password.url(), Some("canary-wrong"), None),
        (by_token.url(), None, Some("canary-token")),
        (by_token.url(), None, Some("canary-wrong")),
        ("nats://127.0.0.1:1".into(), Some("canary-password"), None),
    ] {
        let mut config = NatsConfig::default();
        config.servers = vec![server];
        config.user = password.map(|_| "relay".into());
        config.password = password.map(Secret::new);
        config.token = token.map(Secret::new);
        (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(2));
        configs.push(config);
    }
    let mut seen = Vec::new();
    for config in &configs {
        let client = NatsClient::new(config).expect("a client");
        let sink = client.sink("orders.{topic}".parse().expect("a destination")).expect("a sink");
        let mut secret = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
        secret.headers.insert("colour".into(), HEADERS.into());
        let mut poison = message(1);
        poison.topic = "canary.*".into();
        let outcomes = sink.publish(&[secret, poison]).await;
        seen.push(format!("{outcomes:?} {sink:?} {client:?} {config:?} {:?}", sink.ready().await));
        seen.push(serde_json::to_string(config).expect("it can be shown"));
    }
    let mut wrong = configs[0].clone();
    wrong.servers.push("nats://canary-user:canary-password@127.0.0.1".into());
    seen.push(format!("{:?}", NatsClient::new(&wrong).expect_err("refused")));
    let mut wrong = NatsConfig::default();
    wrong.servers = vec![by_token.url()];
    wrong.credentials = Some(Secret::new("canary-credentials"));
    seen.push(format!("{:?}", NatsClient::new(&wrong).expect_err("refused")));
    for text in &seen {
        assert!(!text.contains("canary"), "{text}");
    }
    let log = log.text();
    assert!(log.contains("write operation: CONNECT"), "logging in was listened to: {log}");
    let found = log.lines().find(|line| line.replace(HEADERS, "").contains("canary"));
    assert_eq!(found, None, "in the log");
    let printed = log.lines().filter(|line| line.contains(HEADERS));
    assert!(
        printed.clone().all(|line| line.contains("TRACE async_nats::connection")),
        "{:?}",
        printed.collect::<Vec<_>>()
    );
}
