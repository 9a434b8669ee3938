//! No password, payload or header value is in an error, in what is printed, or in a log.
#![cfg(feature = "amqp")]

#[path = "support/rabbit.rs"]
mod rabbit;

use std::time::Duration;

use postrider_core::{Outcome, Payload, Sink};
use postrider_sinks::AmqpClient;
use postrider_sinks::setting::Secret;
use rabbit::{Plain, config, shared, unique};
use testkit::log::Log;
use testkit::sinks::of_payload;

/// As the library writes bytes.
fn in_numbers(text: &str) -> String {
    let numbers: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    numbers.join(", ")
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_no_canary_is_seen() {
    let port = shared().await.server.port();
    let queue = unique("secrets");
    Plain::connect(port).await.declare(&queue).await;
    let log = Log::listen();

    let mut seen = Vec::new();
    let mut wrong = config(port);
    wrong.password = Secret::new("canary-wrong-password");
    let mut nobody = config(1);
    nobody.connect_timeout = Duration::from_millis(500);
    // Arrives; is returned; is refused by the broker; cannot log in; finds nobody.
    for (config, destination) in
        [(config(port), queue.as_str()), (config(port), "canary-no-such-queue"), (wrong, "x"), (nobody, "x")]
    {
        let client = AmqpClient::new(&config).expect("a client");
        let sink = client.sink(destination.parse().expect("a destination")).expect("a sink");
        seen.push(format!("{config:?} {} {client:?}", serde_json::to_string(&config).expect("it can be shown")));
        let mut message = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
        message.headers.insert("colour".into(), "canary-header".into());
        let outcome = sink.publish(&[message]).await.remove(0);
        assert_ne!(outcome.kind(), "busy");
        seen.push(format!("{outcome:?} {:?}", sink.ready().await));
        assert_eq!(outcome == Outcome::Accepted, destination == queue, "{outcome:?}");
    }
    for text in &seen {
        assert!(!text.contains("canary"), "{text}");
    }
    let log = log.text();
    assert!(log.contains("connected to the broker") && log.contains("TRACE"), "the log was listened to: {log}");
    let hidden = ["canary-payload", "canary-header", "canary-broker-password", "canary-wrong-password"];
    let found = log
        .lines()
        .find(|line| hidden.iter().any(|canary| line.contains(canary) || line.contains(&in_numbers(canary))));
    assert_eq!(found, None, "in the log");
}
