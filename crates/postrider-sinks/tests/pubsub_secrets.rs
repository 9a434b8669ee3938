//! S16, S17: keys, payloads and header values are in no log, error, outcome or debug output of the sink pubsub.
#![cfg(feature = "pubsub")]

mod pubsub_support;

use std::time::Duration;

use postrider_core::{Payload, Sink};
use postrider_sinks::setting::Secret;
use postrider_sinks::{Format, PubsubClient, PubsubConfig, SinkConfig};
use pubsub_support::{Kind, Place};
use testkit::log::Log;
use testkit::sinks::of_payload;
use tonic::Code;

/// Settings for the real service with a key that is none: nothing is sent anywhere.
fn unusable() -> PubsubConfig {
    let key = serde_json::json!({
        "type": "service_account", "client_email": "canary@example.com", "private_key_id": "canary-id",
        "project_id": "canary",
        "private_key": "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n",
    });
    let mut config = PubsubConfig::default();
    config.project = "home".into();
    config.endpoint = Some("https://127.0.0.1:1".into());
    config.credentials = Some(Secret::new(key.to_string()));
    config
}

#[tokio::test]
async fn s16_s17_no_canary_is_seen() {
    let log = Log::listen();

    let place = Place::start(Kind::Fake).await;
    place.fake().refuse_attribute("refused");
    let mut seen = Vec::new();
    for ordered in [true, false] {
        let mut config = place.config(ordered);
        (config.timeout, config.connect_timeout) = (Duration::from_secs(1), Duration::from_millis(500));
        for format in Format::ALL {
            let sink = place.bind(&config, format);
            for code in [Code::Ok, Code::InvalidArgument, Code::NotFound, Code::Internal, Code::Unknown] {
                let mut message = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
                message.headers.insert("colour".into(), "canary-header".into());
                match code {
                    Code::Ok => {}
                    Code::InvalidArgument => drop(message.headers.insert("refused".into(), "canary-refused".into())),
                    _ => place.fake().fail(if ordered { "order-7" } else { "" }, code, 1),
                }
                let outcomes = sink.publish(std::slice::from_ref(&message)).await;
                seen.push(format!("{outcomes:?} {:?}", sink.ready().await));
            }
        }
    }
    place.stop();
    let mut message = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
    seen.push(format!("{:?}", place.sink(Format::Plain, true).publish(std::slice::from_ref(&message)).await));
    message.headers.insert("n".repeat(300), "canary-header".into());
    seen.push(format!("{:?}", place.sink(Format::Plain, true).publish(std::slice::from_ref(&message)).await));

    let config = unusable();
    assert_eq!(config.problems(), []);
    let client = PubsubClient::new(&config).expect("a client");
    let sink = client.sink("events".parse().expect("good")).expect("a sink");
    message.headers.clear();
    let outcomes = sink.publish(std::slice::from_ref(&message)).await;
    assert_eq!(outcomes[0].kind(), "retry", "{outcomes:?}");
    seen.push(format!("{outcomes:?} {:?} {config:?} {client:?} {sink:?}", sink.ready().await));
    let mut wrong = unusable();
    wrong.credentials = Some(Secret::new("canary"));
    seen.push(format!("{:?}", PubsubClient::new(&wrong).expect_err("refused")));

    for text in &seen {
        assert!(!text.contains("canary"), "{text}");
    }
    let log = log.text();
    assert!(log.contains("TRACE"), "the log was listened to");
    assert!(log.contains("Pub/Sub does not answer"), "the operator is told");
    assert_eq!(log.lines().find(|line| line.contains("canary")), None, "in the log");
}
