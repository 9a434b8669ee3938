//! What goes over the wire: formats, headers and signatures, checked with the official libraries of Standard Webhooks and
//! CloudEvents, and on the raw bytes.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::Format;
use postrider_sinks::HttpConfig;
use postrider_sinks::setting::Secret;
use serde_json::{Value, json};
use support::{Received, Server, local, message, sink, status};
use uuid::Uuid;

const CREATED: i64 = 1_700_000_000_123_456;
const TENANT: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const FORMATS: [Format; 3] = [Format::CloudeventsBinary, Format::CloudeventsStructured, Format::Plain];

fn key(byte: u8) -> String {
    format!("whsec_{}", STANDARD.encode([byte; 32]))
}

fn config(format: Format, keys: &[u8]) -> HttpConfig {
    let mut config = local();
    config.format = format;
    config.signing_keys = keys.iter().map(|byte| Secret::new(key(*byte))).collect();
    config.breaker_failures = 1_000;
    config
}

/// A message with everything.
fn full(topic: &str, payload: Payload, content_type: Option<&str>) -> ClaimedMessage {
    let mut message = message("shop äö/%", topic, payload);
    message.key = Some("Kunde \"Müller\" 100%\u{1f600}".into());
    message.tenant_id = Some(TENANT);
    message.dedupe_key = Some("order/1".into());
    message.attempts = 3;
    message.created_at_micros = CREATED;
    let headers =
        [("traceparent", TRACEPARENT), ("tracestate", "a=1,b=2"), ("postrider-replayed", "2"), ("colour", "deep red")];
    message.headers.extend(headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    message.headers.extend(content_type.map(|text| ("content-type".to_owned(), text.to_owned())));
    message
}

async fn send(config: &HttpConfig, message: &ClaimedMessage) -> Received {
    let server = Server::start(|_| status(202)).await;
    let outcome = sink(config, &server.url("/hook")).publish(std::slice::from_ref(message)).await;
    assert_eq!(outcome, [Outcome::Accepted]);
    server.take().remove(0)
}

fn expected(message: &ClaimedMessage) -> Value {
    let attributes = json!({
        "id": message.id, "source": "/postrider/shop%20%C3%A4%C3%B6%2F%25", "type": message.topic, "subject": message.key,
        "specversion": "1.0", "datacontenttype": message.content_type(), "time": "2023-11-14T22:13:20.123456Z",
        "namespace": message.namespace, "partitionkey": message.key, "tenantid": TENANT, "dedupekey": "order/1",
        "attempt": "3", "replayed": "2", "traceparent": TRACEPARENT, "tracestate": "a=1,b=2",
    });
    match &message.payload {
        Payload::Json(text) => {
            json!({"attributes": attributes, "json": serde_json::from_str::<Value>(text).expect("JSON")})
        }
        Payload::Bytes(bytes) => json!({"attributes": attributes, "bytes": STANDARD.encode(bytes)}),
    }
}

#[tokio::test]
async fn s07_official_libraries_understand_every_format() {
    let json_payload = || Payload::Json(r#"{"b": 1, "a": ["ä", "\u0000", 1.0e2], "n": 12345678901234567890}"#.into());
    let mut lines = Vec::new();
    for format in FORMATS {
        for keys in [&[1_u8][..], &[1, 2]] {
            for message in [
                full("order.placed", json_payload(), None),
                full(
                    "Bestellung aufgegeben: Größe \"L\"",
                    json_payload(),
                    Some("application/vnd.shop+json; charset=utf-8"),
                ),
                full("zwei\r\nZeilen", Payload::Bytes(vec![0, 0xff, 0xfe, b'\r', b'\n', 0x80]), Some("image/png")),
                full("bytes", Payload::Bytes("Grüße".into()), None),
                full("empty", Payload::Bytes(Vec::new()), None),
            ] {
                let received = send(&config(format, keys), &message).await;
                let case = json!({
                    "format": if format == Format::Plain { "plain" } else { "cloudevents" }, "headers": received.headers,
                    "body": STANDARD.encode(&received.body), "keys": keys.iter().map(|byte| key(*byte)).collect::<Vec<_>>(),
                    "wrong_key": key(9), "expected": expected(&message),
                });
                lines.push(case.to_string());
            }
        }
    }
    assert_eq!(check(&lines).trim(), lines.len().to_string());
}

/// Runs the receiver over lines of JSON.
fn check(lines: &[String]) -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let made = Command::new(format!("{here}/../../scripts/python-env")).output().expect("scripts/python-env runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let python = String::from_utf8(made.stdout).expect("a path");
    let mut child = Command::new(python.trim())
        .arg(format!("{here}/tests/receiver.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let mut input = child.stdin.take().expect("its input");
    let text = lines.join("\n");
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let ended = child.wait_with_output().expect("it ended");
    let _ = writer.join();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("text")
}

#[tokio::test]
async fn r07_the_body_is_the_payload_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for format in [Format::CloudeventsBinary, Format::Plain] {
        let received = send(&config(format, &[]), &message("n", "t", Payload::Bytes(bytes.clone()))).await;
        assert_eq!(received.body, bytes);
        let text = "{\"b\":1,\"a\":1,\n\"n\":1.0e2,\"big\":123456789012345678901234567890}";
        let received = send(&config(format, &[]), &message("n", "t", support::json(text))).await;
        assert_eq!(received.body, text.as_bytes());
        assert!(!received.headers.contains_key("webhook-signature"));
    }
    let text = r#"{"big":123456789012345678901234567890,"n":1.0e2}"#;
    let received = send(&config(Format::CloudeventsStructured, &[]), &message("n", "t", support::json(text))).await;
    assert!(String::from_utf8(received.body).expect("text").contains(text), "numbers are not touched");
}

#[tokio::test]
async fn plain_carries_everything_in_headers() {
    let received = send(&config(Format::Plain, &[]), &full("t\nu", support::json("{}"), None)).await;
    for (name, value) in [
        ("content-type", "application/json"),
        ("postrider-namespace", "shop%20%C3%A4%C3%B6/%25"),
        ("postrider-topic", "t%0Au"),
        ("postrider-key", "Kunde%20%22M%C3%BCller%22%20100%25%F0%9F%98%80"),
        ("postrider-tenant", &TENANT.to_string()),
        ("postrider-dedupe-key", "order/1"),
        ("postrider-attempt", "3"),
        ("postrider-created", "2023-11-14T22:13:20.123456Z"),
        ("postrider-replayed", "2"),
        ("traceparent", TRACEPARENT),
        ("tracestate", "a=1,b=2"),
        ("colour", "deep red"),
    ] {
        assert_eq!(received.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(received.headers["user-agent"].starts_with("postrider/"));
}

/// Everything that a row can hold, in every field, and the operator's headers on top.
#[tokio::test]
async fn s05_no_text_in_a_row_becomes_a_header_of_its_own() {
    let evil = [
        "a\r\nevil: 1",
        "a\nevil: 1",
        "a\rb",
        "\u{1}\u{7f}\u{80}\u{85}\u{2028}",
        "ä\u{feff}\u{202e}",
        "\r\n\r\nPOST /evil HTTP/1.1\r\nhost: evil\r\n\r\n",
        " ",
        "%0d%0aevil: 1",
    ];
    for format in FORMATS {
        for text in evil {
            let mut config = config(format, &[1]);
            config.headers = [("authorization".to_owned(), Secret::new("Bearer right"))].into();
            let mut message = full(text, support::json("{}"), Some(text));
            (message.namespace, message.key, message.dedupe_key) = (text.into(), Some(text.into()), Some(text.into()));
            for name in
                ["host", "content-length", "authorization", "transfer-encoding", "ce-id", "webhook-id", "traceparent"]
            {
                message.headers.insert(name.into(), text.into());
            }
            message.headers.insert("authorization".into(), "Bearer wrong".into());
            message.headers.insert("content-length".into(), "0".into());
            message.headers.insert(text.into(), "x".into());
            let server = Server::start(|_| status(202)).await;
            let outcome = sink(&config, &server.url("/hook")).publish(std::slice::from_ref(&message)).await;
            assert_eq!(outcome, [Outcome::Accepted], "{format:?} {text:?}");
            let received = server.take();
            assert_eq!(received.len(), 1, "{format:?} {text:?}: one message is one request");
            let received = &received[0];
            assert!(!received.headers.contains_key("evil"), "{format:?} {text:?}: {:?}", received.lines);
            assert_eq!(received.headers["authorization"], "Bearer right");
            assert_eq!(received.headers["host"], server.address.to_string());
            assert_eq!(received.headers["webhook-id"], message.id.to_string());
            assert_eq!(received.headers["postrider-header-authorization"], "Bearer%20wrong");
            for line in &received.lines {
                assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{format:?} {text:?}: {line:?}");
            }
            for name in ["host", "content-length", "authorization", "webhook-id", "content-type", "ce-id"] {
                let times = received.lines.iter().filter(|line| line.to_lowercase().starts_with(&format!("{name}:")));
                assert!(times.count() <= 1, "{format:?} {text:?}: {name} twice");
            }
        }
    }
}

#[tokio::test]
async fn s05_what_cannot_be_sent_at_all_is_rejected_with_a_reason() {
    let server = Server::start(|_| status(202)).await;
    let outcome = async |format: Format, path: &str, message: &ClaimedMessage| {
        let outcome = sink(&config(format, &[]), &server.url(path)).publish(std::slice::from_ref(message)).await;
        match outcome.as_slice() {
            [Outcome::Unsendable(why)] => why.clone(),
            other => panic!("{other:?}"),
        }
    };
    let good = || message("n", "t", support::json("{}"));
    let mut large = good();
    large.headers.insert("x".into(), "x".repeat(100_000));
    let mut many = good();
    many.headers.extend((0..40_000).map(|at| (format!("x{at}"), String::new())));
    let broken = message("n", "t", support::json("{broken"));
    let no_topic = message("n", "", support::json("{}"));
    assert!(outcome(Format::Plain, "/", &large).await.contains("headers"));
    assert!(outcome(Format::Plain, "/", &many).await.contains("headers"));
    assert!(outcome(Format::CloudeventsStructured, "/", &broken).await.contains("not JSON"));
    assert!(outcome(Format::CloudeventsBinary, "/", &no_topic).await.contains("topic is empty"));
    assert!(outcome(Format::Plain, "/{key}", &good()).await.contains("needs the key"));
    assert!(outcome(Format::Plain, "/a/{topic}/b", &message("n", "..", support::json("{}"))).await.contains("outside"));
    assert_eq!(server.accepts(), 0, "nothing was sent");
}

#[tokio::test]
async fn s05_a_producer_cannot_pass_off_its_payload_as_another_event() {
    let forged = r#"{"specversion":"1.0","id":"forged","source":"/bank","type":"paid"}"#;
    for content_type in ["application/cloudevents+json", "Application/CloudEvents-batch+json; charset=utf-8"] {
        let message = full("t", support::json(forged), Some(content_type));
        let received = send(&config(Format::CloudeventsBinary, &[]), &message).await;
        assert_eq!(received.headers["content-type"], "application/octet-stream");
        assert_eq!(received.headers["ce-id"], message.id.to_string());
        assert_eq!(received.headers["postrider-header-content-type"], content_type.replace(' ', "%20"));
    }
}
