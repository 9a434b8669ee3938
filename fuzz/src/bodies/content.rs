//! What messages are made of: destinations, payloads, and how they are written for a broker.

use std::borrow::Cow;
use std::collections::BTreeSet;

use postrider::lease::{Lease, RowAddress};
use postrider::sinks::Format;
use postrider::sinks::format::Form;
use postrider::sinks::provider::Normalised;
use postrider::{ClaimedMessage, Destination, EventEnvelope, Limits, Message, Payload};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{CANARY, text};

/// A message under lease with this payload.
pub(super) fn claimed(namespace: &str, topic: &str, payload: Payload) -> ClaimedMessage {
    let lease =
        Lease { id: Uuid::from_u128(7), worker: Uuid::from_u128(8), attempt: 1, address: RowAddress::default() };
    ClaimedMessage::new(lease, namespace.to_owned(), topic.to_owned(), payload)
}

/// A template of a destination, and below it namespace, topic and key of a message: no message leaves the operator's prefix.
pub fn destination(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.split('\n');
    let [template, namespace, topic, key] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let Ok(destination) = template.parse::<Destination>() else { return };
    assert_eq!(destination.to_string(), template);
    let mut message = claimed(namespace, topic, Payload::Json("1".into()));
    message.key = Some(key.to_owned()).filter(|key| !key.is_empty());
    if let Ok(name) = destination.of(&message, encode) {
        assert!(name.starts_with(destination.prefix()), "{name:?} is outside");
        let slashes = |text: &str| text.matches('/').count();
        assert_eq!(slashes(&name), slashes(template), "a field is put in without its encoding: {name:?}");
        assert!(!destination.is_fixed() || name == template);
    }
}

fn encode(value: &str) -> Result<Cow<'_, str>, String> {
    Ok(Cow::Owned(value.replace('/', "%2F")))
}

/// JSON of a producer, and of a message to a person: it is refused without being repeated, or is kept as it is.
pub fn payload(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(raw) = serde_json::from_str::<&RawValue>(text) {
        match Message::json("shop", "order.placed", raw).into_row(&Limits::default()) {
            Ok(row) => {
                assert_eq!(row.payload, raw.get());
                if let Ok(value) = serde_json::from_str::<serde_json::Value>(&row.payload) {
                    assert!(!has_nul(&value), "no jsonb holds a NUL");
                }
            }
            Err(refused) => assert!(!refused.to_string().contains(CANARY), "{refused}"),
        }
    }
    match Normalised::of(&Payload::Json(text.to_owned())) {
        Ok(said) => assert!(said.plain().starts_with(&said.text) && !format!("{said:?}").contains(CANARY)),
        Err(problem) => assert!(!problem.contains(CANARY), "{problem}"),
    }
}

fn has_nul(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Array(values) => values.iter().any(has_nul),
        serde_json::Value::Object(values) => values.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// A row as any program may have written it: topic and key, headers as `name: value`, an empty line, the payload. Whatever the
/// format, what is written for a broker holds the payload, and no name of a header comes twice.
pub fn content(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (head, payload) = text.split_once("\n\n").unwrap_or((text, "null"));
    let mut lines = head.lines();
    let [topic, key] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let json = serde_json::from_str::<&RawValue>(payload).ok();
    let body = match json {
        Some(_) => Payload::Json(payload.to_owned()),
        None => Payload::Bytes(payload.as_bytes().to_vec()),
    };
    let mut message = claimed("shop", topic, body);
    message.key = Some(key.to_owned()).filter(|key| !key.is_empty());
    message.headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    for format in Format::ALL {
        let form = Form::new(format, "/postrider/{namespace}", "ce_").expect("a source");
        let Ok(content) = form.content(&message) else { continue };
        let names: BTreeSet<&str> = content.headers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names.len(), content.headers.len(), "a name comes twice: {names:?}");
        let id = content.headers.iter().find(|(name, _)| name == "event_id").map(|(_, value)| &**value);
        assert_eq!(id, Some(&*message.id.to_string()), "the id is ours to say");
        match format {
            Format::CloudeventsStructured => {
                let event: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_slice(&content.body).expect("a JSON document");
                assert_eq!(event["id"], message.id.to_string());
                assert_eq!(event["specversion"], "1.0");
                assert!(event.contains_key("data") != event.contains_key("data_base64"));
            }
            Format::Envelope => {
                let envelope: EventEnvelope<&RawValue> = serde_json::from_slice(&content.body).expect("an envelope");
                assert_eq!(envelope.event_id, message.id);
                assert_eq!(Some(envelope.data.get()), json.map(RawValue::get));
            }
            _ => assert_eq!(&*content.body, message.payload.as_bytes()),
        }
    }
}
