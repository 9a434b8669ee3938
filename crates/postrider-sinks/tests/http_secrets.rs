//! S16, S17: keys, tokens and payloads are in no log, error, outcome or debug output, whatever goes wrong.

mod support;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Outcome, Payload, Sink};
use postrider_sinks::Format;
use postrider_sinks::setting::Secret;
use postrider_sinks::{HttpClient, HttpConfig, HttpSink};
use support::{Received, Reply, Server, destination, local, message};
use testkit::log::Log;

/// Every canary begins so.
const CANARY: &str = "canary";

/// Answers with everything it was sent, in reason, headers and body.
fn echo(request: &Received) -> Reply {
    let body = String::from_utf8_lossy(&request.body).replace(['\r', '\n'], " ");
    let code = request.path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
    let all = format!("{body} {}", request.lines.join(" "));
    let answer = format!(
        "HTTP/1.1 {code} {body}\r\nx-echo: {all}\r\nretry-after: {body}\r\ncontent-length: {}\r\n\r\n{all}",
        all.len()
    );
    match code.as_str() {
        "broken" => Reply::Reset(all.into_bytes()),
        "slow" => Reply::Silence,
        _ => Reply::Bytes(answer.into_bytes()),
    }
}

fn config(format: Format) -> HttpConfig {
    let mut config = local();
    config.format = format;
    config.headers = [("authorization", "Bearer canary-token"), ("x-api-key", "canary-api-key")]
        .map(|(name, value)| (name.to_owned(), Secret::new(value)))
        .into();
    let key = STANDARD.encode("canary-signing-key-canary-signing-key");
    config.signing_keys = vec![Secret::new(format!("whsec_{key}"))];
    config.timeout = Duration::from_millis(300);
    config.connect_timeout = Duration::from_millis(300);
    config.breaker_failures = 1_000;
    config
}

#[tokio::test]
async fn s16_s17_no_canary_is_seen() {
    let log = Log::listen();

    let mut seen = Vec::new();
    let server = Server::start(echo).await;
    let closed = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")));
    for format in [Format::CloudeventsBinary, Format::CloudeventsStructured, Format::Plain] {
        let config = config(format);
        let client = HttpClient::new(&config).expect("a client");
        seen.push(format!("{config:?} {} {client:?}", serde_json::to_string(&config).expect("it can be shown")));
        let mut urls: Vec<String> = ["200", "302", "400", "404", "422", "429", "500", "broken", "slow"]
            .map(|code| server.url(&format!("/{code}/canary-path-token?key=canary-query-token")))
            .into();
        urls.push(format!("http://{closed}/canary-path-token/{{topic}}"));
        for url in urls {
            let sink: HttpSink = client.sink(destination(&url)).expect("a sink");
            let mut message = message("n", "t", Payload::Json(r#"{"card":"canary-payload"}"#.into()));
            message.headers.insert("colour".into(), "canary-header".into());
            message.headers.insert("authorization".into(), "canary-producer-token".into());
            let outcome = sink.publish(&[message]).await.remove(0);
            seen.push(format!("{outcome:?} {sink:?} {:?}", sink.ready().await));
            assert!(!matches!(outcome, Outcome::Busy { .. }), "{outcome:?}");
        }
    }
    for wrong in [
        "https://canary-user:canary-password@example.com/",
        "https://example.com/canary-path-token/../{topic}",
        "http://127.9.9.9/canary-path-token",
        "canary://example.com/canary-path-token",
    ] {
        let problem = HttpClient::new(&config(Format::Plain)).expect("a client").sink(destination(wrong));
        seen.push(problem.expect_err("refused").to_string());
    }
    let mut wrong = config(Format::Plain);
    wrong.signing_keys = vec![Secret::new("canary-bad-key")];
    seen.push(format!("{:?}", HttpClient::new(&wrong).expect_err("refused")));
    let mut wrong = config(Format::Plain);
    wrong.headers.insert("x".into(), Secret::new("canary\nbad"));
    seen.push(format!("{:?}", HttpClient::new(&wrong).expect_err("refused")));

    let key = STANDARD.encode("canary-signing-key-canary-signing-key");
    for text in &seen {
        assert!(!text.contains(CANARY) && !text.contains(&key), "{text}");
    }
    let log = log.text();
    assert!(log.contains("TRACE") && log.contains("log DEBUG reqwest"), "the log was listened to: {log}");
    let found = log.lines().find(|line| line.contains(CANARY) || line.contains(&key));
    assert_eq!(found, None, "in the log");
    let sent = server.take();
    let times = sent.iter().filter(|request| format!("{:?}", request.lines).contains("canary-token")).count();
    assert_eq!(times, sent.len(), "the canaries were there to be seen");
}
