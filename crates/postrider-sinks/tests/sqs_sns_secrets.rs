//! No key, session token, payload or header value is in an error, in what is printed, or in a log of the sinks sqs and sns,
//! whatever the service does. Amazon's client writes whole requests into its log at the level TRACE.
#![cfg(all(feature = "sqs", feature = "sns", feature = "http"))]

#[path = "support/aws.rs"]
mod aws;
#[path = "support/aws_script.rs"]
mod aws_script;
mod support;

use std::sync::Arc;
use std::time::Duration;

use aws_script::{Api, BOTH, http};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Outcome, Payload, Sink};
use postrider_sinks::setting::Secret;
use postrider_sinks::{SnsClient, SnsConfig, SqsClient, SqsConfig};
use support::{Received, Reply, Server};
use testkit::log::Log;
use testkit::sinks::of_payload;

/// Answers with everything it was sent, as far as the case lets it.
fn behave(api: Api, case: &str, request: &Received) -> Reply {
    let is_publish = match api {
        Api::Sqs => request.headers["x-amz-target"].ends_with("SendMessageBatch"),
        Api::Sns => request.body.starts_with(b"Action=PublishBatch"),
    };
    let all = format!("{} {}", request.lines.join(" "), String::from_utf8_lossy(&request.body));
    let all = all.replace(['\r', '\n', '<', '&', '"', '\\'], " ");
    match case {
        "good" if is_publish => api.take(request),
        "good" => http(200, "{\"QueueUrl\":\"http://127.0.0.1/1/orders\"}"),
        "refused" => api.refuse(400, "InvalidMessageContents", &all),
        "forbidden" => api.refuse(403, "AccessDenied", &all),
        "code" => api.refuse(400, &all.replace(' ', ""), &all),
        "ill" => api.refuse(500, "InternalError", &all),
        "garbage" => http(200, &all),
        "broken" => Reply::Reset(all.into_bytes()),
        _ => Reply::Silence,
    }
}

fn sink(api: Api, port: u16) -> (Arc<dyn Sink>, String) {
    let mut aws = aws::access(port);
    aws.access_key_id = Some(Secret::new("canaryAccessKey"));
    aws.secret_access_key = Some(Secret::new("canary-secret-key"));
    aws.session_token = Some(Secret::new("canary-session-token"));
    let limit = Duration::from_millis(700);
    match api {
        Api::Sqs => {
            let mut config = SqsConfig::default();
            (config.aws, config.timeout, config.connect_timeout) = (aws, limit, limit);
            let client = SqsClient::new(&config).expect("a client");
            let sink = client.sink("orders".parse().expect("a destination")).expect("a sink");
            let shown = format!("{config:?} {client:?} {sink:?} {}", serde_json::to_string(&config).expect("shown"));
            (Arc::new(sink), shown)
        }
        Api::Sns => {
            let mut config = SnsConfig::default();
            (config.aws, config.timeout, config.connect_timeout) = (aws, limit, limit);
            let client = SnsClient::new(&config).expect("a client");
            let destination = "arn:aws:sns:eu-central-1:123456789012:orders".parse().expect("a destination");
            let sink = client.sink(destination).expect("a sink");
            let shown = format!("{config:?} {client:?} {sink:?} {}", serde_json::to_string(&config).expect("shown"));
            (Arc::new(sink), shown)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_no_canary_is_seen() {
    let log = Log::listen();

    let mut seen = Vec::new();
    for api in BOTH {
        for case in ["good", "refused", "forbidden", "code", "ill", "garbage", "broken", "silent", "closed"] {
            let server = Server::start(move |request| behave(api, case, request)).await;
            let port = server.address.port();
            if case == "closed" {
                drop(server);
            }
            let (sink, shown) = sink(api, port);
            seen.push(shown);
            let mut message = of_payload(Payload::Json(r#"{"card":"canary-payload"}"#.into()));
            message.headers.insert("colour".into(), "canary-header".into());
            message.key = Some("canary-key".into());
            let outcome = sink.publish(&[message]).await.remove(0);
            assert_eq!(outcome == Outcome::Accepted, case == "good", "{api:?} {case} {outcome:?}");
            seen.push(format!("{case}: {outcome:?} {:?}", sink.ready().await));
        }
    }
    for text in &seen {
        assert!(!text.to_lowercase().contains("canary-"), "{text}");
        assert!(!text.contains("canaryAccessKey") || text.starts_with("code: "), "{text}");
    }
    tracing::trace!("the end of the test");
    let log = log.text();
    assert!(log.contains("the end of the test"), "the log was listened to: {log}");
    let mut hidden = vec!["canary".to_owned(), STANDARD.encode("canary-payload"), "Signature=".to_owned()];
    hidden.push("canary-payload".bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", "));
    let found: Vec<_> = log.lines().filter(|line| hidden.iter().any(|canary| line.contains(canary))).collect();
    let short = found.iter().map(|line| line.chars().take(300).collect::<String>()).collect::<Vec<_>>();
    assert!(found.is_empty(), "{} lines in the log, such as {short:#?}", found.len());
}
