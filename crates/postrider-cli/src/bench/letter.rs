//! What is sent: JSON with the message's number in it, so that whoever gets it can tell which it is.

use std::sync::Arc;

use postrider::Message;
use serde::Serialize;
use uuid::Uuid;

use super::scenario::{Order, Parameters};

/// The namespace of all messages; the bare loop asks for it as well.
pub const NAMESPACE: &str = "bench";
const TOPIC: &str = "letter";
/// `{"n":4294967295,"pad":""}`
const AROUND: usize = 25;

#[derive(Serialize)]
struct Body<'a> {
    n: u32,
    pad: &'a str,
}

/// The messages of one scenario. Cheap to clone.
#[derive(Clone)]
pub struct Letters {
    pad: Arc<str>,
    keys: Option<u32>,
}

impl Letters {
    pub fn of(parameters: &Parameters) -> Self {
        let keys = (parameters.order == Order::Key).then_some(parameters.keys);
        Self { pad: pad(parameters.payload.saturating_sub(AROUND)), keys }
    }

    /// What fills it up to its size.
    pub fn pad(&self) -> &str {
        &self.pad
    }

    /// The payload as bare SQL writes it.
    pub fn text(&self, n: u32) -> String {
        serde_json::to_string(&Body { n, pad: &self.pad }).unwrap_or_default()
    }

    /// The message as Postrider writes it.
    pub fn message(&self, n: u32) -> Message {
        let message = Message::json(NAMESPACE, TOPIC, &Body { n, pad: &self.pad });
        match self.keys {
            Some(keys) => message.key(format!("key-{}", n % keys)),
            None => message,
        }
    }

    /// The same of a tenant.
    pub fn of_tenant(&self, n: u32, tenant: u32) -> Message {
        self.message(n).tenant(Uuid::from_u128(u128::from(tenant) + 1))
    }

    /// How many of them one statement may write, so that it stays below what servers take.
    pub fn per_statement(&self) -> u32 {
        (4_000_000 / (self.pad.len() + AROUND)).clamp(1, 1_000) as u32
    }
}

/// Text that does not compress, as little as real payloads do: the same in every run.
fn pad(length: usize) -> Arc<str> {
    let mut chance = fastrand::Rng::with_seed(9);
    (0..length).map(|_| chance.alphanumeric()).collect::<String>().into()
}

/// The number in a payload. It stands first, also where the database renders JSON anew (PostgreSQL puts short keys first), so
/// it is found in the first bytes however long the payload is.
pub fn number(payload: &[u8]) -> Option<u32> {
    let digits = payload.strip_prefix(b"{\"n\":")?;
    let digits = digits.strip_prefix(b" ").unwrap_or(digits);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_that_was_asked_for_and_its_number() {
        let letters = Letters::of(&Parameters { payload: 200, ..Parameters::default() });
        assert_eq!(letters.text(u32::MAX).len(), 200);
        assert_eq!(number(letters.text(7).as_bytes()), Some(7));
        assert_eq!(number(br#"{"n": 4294967295, "pad": "x"}"#), Some(u32::MAX));
    }

    #[test]
    fn what_is_no_letter_has_no_number() {
        for other in [&b""[..], b"{}", b"null", b"{\"n\":", b"{\"n\":\"7\"}", b"{\"n\":99999999999}"] {
            assert_eq!(number(other), None);
        }
    }
}
