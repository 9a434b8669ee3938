//! A message as SQS and SNS take it: a text, and at most ten attributes.
//!
//! The text must be characters that XML allows. A body that is not is written in base64, and the attribute
//! `content-encoding` says `base64`. An attribute's value must be such a text too, and not empty. The headers in [`FIRST`]
//! are attributes of their own; all others, and those of them whose value cannot be one, are in the attribute `headers`: a
//! JSON object from names to values. So nothing is lost, and there are never more than ten.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::ClaimedMessage;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::format::Form;

/// The prefix of CloudEvents attributes.
pub(crate) const CLOUDEVENTS: &str = "ce-";
/// Headers that are attributes of their own, so that consumers can filter by them.
const FIRST: [&str; 8] =
    ["event_id", "event_type", "namespace", "topic", "key", "tenant_id", "content-type", "traceparent"];
/// Says that the body is in base64.
const ENCODING: &str = "content-encoding";
/// All other headers.
const HEADERS: &str = "headers";
/// The type of an attribute; it counts for the size of a message.
const TYPE: usize = "String".len();
/// The most characters of a group's or deduplication id.
const LONGEST_GROUP: usize = 128;

/// A message that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) body: String,
    pub(crate) attributes: Vec<(&'static str, String)>,
    /// Messages of one group keep their order, on destinations that do.
    pub(crate) group: String,
    /// The event id.
    pub(crate) deduplication: String,
    /// What the service counts.
    pub(crate) size: usize,
}

impl Entry {
    /// Writes a message, or says why it can never be sent.
    pub(crate) fn new(message: &ClaimedMessage, form: &Form, max_size: usize) -> Result<Self, String> {
        let content = form.content(message)?;
        if content.body.is_empty() {
            return Err("its payload is empty, and the service takes no empty messages".into());
        }
        let (mut attributes, mut others) = (Vec::new(), Map::new());
        for (name, value) in &content.headers {
            match FIRST.iter().find(|first| *first == name) {
                Some(first) if !value.is_empty() && is_text(value) => attributes.push((*first, value.to_string())),
                _ => drop(others.insert(name.to_string(), Value::String(value.to_string()))),
            }
        }
        let body = match std::str::from_utf8(&content.body) {
            Ok(text) if is_text(text) => text.to_owned(),
            _ => {
                attributes.push((ENCODING, "base64".into()));
                STANDARD.encode(&content.body)
            }
        };
        if !others.is_empty() {
            attributes.push((HEADERS, escaped(&Value::Object(others).to_string())));
        }
        let size = body.len() + attributes.iter().map(|(name, value)| name.len() + TYPE + value.len()).sum::<usize>();
        if size > max_size {
            return Err(format!(
                "it has {size} bytes with its attributes, and the sink's max_message_size is {max_size}"
            ));
        }
        let group = message.key.as_deref().filter(|key| !key.is_empty()).unwrap_or(&message.namespace);
        Ok(Self { body, attributes, group: group_id(group).into_owned(), deduplication: message.id.to_string(), size })
    }
}

/// Whether XML allows all of it.
fn is_text(text: &str) -> bool {
    text.chars().all(|c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..))
}

/// JSON escapes all that XML does not allow but for these two.
fn escaped(json: &str) -> String {
    json.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
}

/// A key as the id of a group: itself if it can be one, or else its SHA-256, so that equal keys stay equal.
fn group_id(key: &str) -> Cow<'_, str> {
    let allowed = !key.is_empty() && key.len() <= LONGEST_GROUP && key.bytes().all(|b| b.is_ascii_graphic());
    match allowed {
        true => Cow::Borrowed(key),
        false => Cow::Owned(Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

/// Whether something can be the name of a queue or topic; whether it keeps an order is said by its end.
pub(crate) fn check_name(name: &str, longest: usize) -> Result<(), String> {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match !stem.is_empty() && name.len() <= longest && stem.bytes().all(allowed) {
        true => Ok(()),
        false => Err(format!(
            "its destination is no name: use letters, digits, - and _, at most {longest}, with .fifo at the end or not"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    fn message(payload: Payload) -> ClaimedMessage {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "t".into(), payload);
        message.key = Some("k".into());
        message
    }

    fn entry(message: &ClaimedMessage) -> Result<Entry, String> {
        Entry::new(message, &Form::new(Format::Plain, "/x", CLOUDEVENTS).expect("a form"), 10_000)
    }

    fn attribute<'a>(entry: &'a Entry, name: &str) -> Option<&'a str> {
        entry.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn there_are_never_more_than_ten_attributes_and_nothing_is_lost() {
        let mut full = message(Payload::Bytes(vec![0, 255]));
        full.tenant_id = Some(Uuid::nil());
        for number in 0..30 {
            full.headers.insert(format!("header {number} ä"), format!("\u{0}\u{ffff}{number}"));
        }
        full.headers.insert("headers".into(), "mine".into());
        full.headers.insert("traceparent".into(), "\u{1}".into());
        let entry = entry(&full).expect("written");
        assert_eq!(entry.attributes.len(), 9, "{:?}", entry.attributes);
        assert!(entry.attributes.iter().all(|(_, value)| is_text(value) && !value.is_empty()));
        let others: Map<String, Value> =
            serde_json::from_str(attribute(&entry, "headers").expect("there")).expect("JSON");
        assert_eq!(others["header 7 ä"], "\u{0}\u{ffff}7");
        assert_eq!((&others["headers"], &others["traceparent"]), (&Value::from("mine"), &Value::from("\u{1}")));
        assert_eq!((attribute(&entry, "content-encoding"), entry.body.as_str()), (Some("base64"), "AP8="));
        assert!(entry.size > entry.body.len() + 30);
    }

    #[test]
    fn text_stays_text_and_what_cannot_be_sent_says_so() {
        let text = entry(&message(Payload::Json("{\"a\": \"ä\\n\"}".into()))).expect("written");
        assert_eq!((text.body.as_str(), attribute(&text, "content-encoding")), ("{\"a\": \"ä\\n\"}", None));
        assert!(entry(&message(Payload::Bytes(Vec::new()))).expect_err("empty").contains("empty"));
        let large = message(Payload::Json(format!("\"{}\"", "x".repeat(10_000))));
        assert!(entry(&large).expect_err("large").contains("max_message_size"));
    }

    #[test]
    fn a_key_that_can_be_no_group_is_hashed() {
        assert_eq!(group_id("order-7!"), "order-7!");
        for key in ["ä", "a b", "", &"x".repeat(129)] {
            let id = group_id(key);
            assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
            assert_eq!(id, group_id(key));
        }
        let mut without = message(Payload::Json("1".into()));
        without.key = None;
        assert_eq!(entry(&without).expect("written").group, "shop");
    }

    #[test]
    fn names_have_few_characters() {
        for good in ["orders", "a-b_C9", "orders.fifo"] {
            check_name(good, 80).expect(good);
        }
        for bad in ["", ".fifo", "a.b", "a/b", "a b", "ä", "a.fifo.fifo", &"x".repeat(81)] {
            assert!(check_name(bad, 80).is_err(), "{bad}");
        }
    }
}
