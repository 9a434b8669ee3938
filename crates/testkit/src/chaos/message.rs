//! The messages of a run, and what is written down about each.
//!
//! Every one carries the markers of [`secret`](super::secret), some have a key and some a tenant, half of them are JSON and half
//! bytes. A few are larger than the broker takes, and must become dead.

use postrider::Message;
use serde_json::{Value, json};
use uuid::Uuid;

use super::broker::LARGEST;
use super::secret::{HEADER, PAYLOAD};
use crate::checker::evidence::{Entry, fingerprint};

const NAMESPACE: &str = "chaos";
const TOPIC: &str = "order.placed";
const TENANTS: u64 = 4;

/// A message with its line in the ledger.
pub struct Made {
    /// For the outbox.
    pub message: Message,
    /// For the ledger.
    pub entry: Entry,
}

/// A message at a place of a lane; without a lane it has no key.
pub fn made(lane: Option<(u64, &str)>, place: i64) -> Made {
    make(lane, place, "", false)
}

/// A message that no broker of a run takes.
pub fn doomed(place: i64) -> Made {
    make(None, place, &"x".repeat(LARGEST + 1), true)
}

fn make(lane: Option<(u64, &str)>, place: i64, more: &str, is_doomed: bool) -> Made {
    let text = format!("{PAYLOAD} {more}");
    let (message, body) = match place % 2 {
        0 => {
            let value = json!({ "card": text, "item": place });
            (Message::json(NAMESPACE, TOPIC, &value), value.to_string().into_bytes())
        }
        _ => {
            let bytes = [text.as_bytes(), &place.to_be_bytes()].concat();
            (Message::bytes(NAMESPACE, TOPIC, "application/octet-stream", bytes.clone()), bytes)
        }
    };
    let mut message = message.header("x-note", HEADER);
    let mut tenant = None;
    if let Some((number, key)) = lane {
        message = message.key(key);
        tenant = tenant_of(number);
    }
    if let Some(tenant) = tenant {
        message = message.tenant(tenant);
    }
    let key = lane.map(|(_, key)| key);
    let contents = Some(fingerprint(TOPIC, key, tenant, &body));
    Made { entry: Entry { id: message.id(), contents, lane: key.map(str::to_owned), place, is_doomed }, message }
}

/// A lane belongs to one tenant, or to none.
fn tenant_of(lane: u64) -> Option<Uuid> {
    Some(lane % TENANTS).filter(|number| *number > 0).map(|number| Uuid::from_u128(u128::from(number)))
}

/// The same bytes for the same JSON value, which a database may write in its own way; other contents as they are.
pub fn canonical(content_type: &str, body: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if content_type.starts_with("application/json") => value.to_string().into_bytes(),
        _ => body.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_may_write_json_in_its_own_way_and_nothing_else() {
        let compact = canonical("application/json", br#"{"card":"x","item":2}"#);
        assert_eq!(compact, canonical("application/json", br#"{ "item": 2, "card": "x" }"#));
        assert_ne!(compact, canonical("application/json", br#"{"card":"x","item":3}"#));
        assert_ne!(canonical("text/plain", b"[1]"), canonical("text/plain", b"[ 1]"));
    }

    #[test]
    fn contents_tell_keys_tenants_and_payloads_apart() {
        let contents = |lane, place| made(lane, place).entry.contents;
        assert_eq!(contents(Some((1, "a")), 2), contents(Some((1, "a")), 2));
        assert_ne!(contents(Some((1, "a")), 2), contents(Some((2, "a")), 2));
        assert_ne!(contents(Some((1, "a")), 2), contents(Some((1, "b")), 2));
        assert_ne!(contents(Some((1, "a")), 2), contents(Some((1, "a")), 4));
        assert!(doomed(1).entry.is_doomed && doomed(2).entry.lane.is_none());
    }
}
