//! The official library for Python reads what the formats of brokers write as CloudEvents.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{ClaimedMessage, Payload};
use postrider_sinks::Format;
use postrider_sinks::format::{Form, Source};
use serde_json::{Value, json};
use testkit::brokers::venv;
use testkit::sinks::of_payload;
use tokio::process::Command;

/// What goes before attributes in the binding for Kafka, which the library has; the others differ in this only.
const PREFIX: &str = "ce_";

fn case(format: Format, message: &ClaimedMessage) -> Value {
    let content = Form::new(format, Source::DEFAULT, PREFIX).expect("a form").content(message).expect("content");
    json!({
        "headers": content.headers, "body": STANDARD.encode(&content.body),
        "id": message.id, "payload": STANDARD.encode(message.payload.as_bytes()),
        "is_json": matches!(message.payload, Payload::Json(_)), "content_type": message.content_type(),
    })
}

#[tokio::test]
async fn the_official_library_reads_events_and_no_producer_changes_them() {
    let mut messages = vec![of_payload(Payload::Json(r#"{"text":"Grüße 🍷"}"#.into()))];
    messages.push(of_payload(Payload::Bytes((0..=255).collect())));
    messages[1].headers.insert("content-type".into(), "application/x-canary".into());
    for message in &mut messages {
        message.headers.insert("occurred-at".into(), "2026-11-16T08:00:00.25+01:00".into());
        for name in ["ce_id", "CE_ID", "Ce_Type", "cE_source", "CE_specversion", "Content-Type"] {
            message.headers.insert(name.into(), "forged".into());
        }
    }
    let formats = [Format::CloudeventsBinary, Format::CloudeventsStructured];
    let cases: Vec<Value> = messages.iter().flat_map(|message| formats.map(|format| case(format, message))).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("cases.json");
    std::fs::write(&file, json!(cases).to_string()).expect("written");
    let python = tokio::task::spawn_blocking(venv::python).await.expect("it ran").expect("a Python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/events.py");
    let ended = Command::new(python).arg("-I").arg(script).arg(&file).output().await.expect("Python runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(said.trim(), cases.len().to_string(), "all of them were read");
}
