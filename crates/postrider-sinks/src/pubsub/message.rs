//! What a message looks like on the wire.
//!
//! The body is the data, all headers are attributes. Pub/Sub has limits for them, and this is how each is met:
//!
//! | limit | what becomes of it |
//! |---|---|
//! | a value is at most 1024 bytes | a longer one goes in parts: `postrider-part-0-<name>`, `postrider-part-1-<name>` and so on, to be put together in this order; there is no attribute `<name>` then |
//! | no name begins with `goog` | it goes under `postrider-header-<name>` |
//! | a name is at most 256 bytes | the message cannot be sent |
//! | at most 100 attributes | the message cannot be sent |
//! | a request is at most 10 MB | the message cannot be sent |
//! | an ordering key is at most 1024 bytes | the message cannot be sent, if `ordering` is on |
//!
//! A producer's own header that begins with `postrider-part-` goes under `postrider-header-<name>`, so that parts are
//! always ours.

use std::borrow::Cow;
use std::collections::HashMap;

use google_cloud_pubsub::model::Message;
use postrider_core::ClaimedMessage;

use crate::format::{CARRIED, Form};

const MOST_ATTRIBUTES: usize = 100;
const LONGEST_NAME: usize = 256;
const LONGEST_VALUE: usize = 1_024;
const LONGEST_KEY: usize = 1_024;
/// The largest request.
pub(super) const LARGEST: usize = 10_000_000;
/// The most that the encoding adds to each attribute: tags and lengths.
const PER_ATTRIBUTE: usize = 16;
/// The most that it adds to a message besides: the tags and lengths of its fields.
const PER_MESSAGE: usize = 64;
/// What goes before a name whose value is in parts.
const PART: &str = "postrider-part-";

/// Writes a message, or says what is wrong with it: it can never be sent. `ordered` gives it its key as ordering key.
pub(super) fn write(form: &Form, message: &ClaimedMessage, topic: &str, ordered: bool) -> Result<Message, String> {
    let content = form.content(message)?;
    let mut attributes = HashMap::with_capacity(content.headers.len());
    for (name, value) in content.headers {
        add(&mut attributes, name, &value)?;
    }
    let key = if ordered { message.key.as_deref().unwrap_or_default() } else { "" };
    if key.len() > LONGEST_KEY {
        return Err(format!("its key is longer than {LONGEST_KEY} bytes, which no ordering key of Pub/Sub may be"));
    }
    if attributes.len() > MOST_ATTRIBUTES {
        return Err(format!("it has more than {MOST_ATTRIBUTES} attributes, and Pub/Sub takes no more"));
    }
    let written = Message::new().set_data(content.body.into_owned()).set_attributes(attributes).set_ordering_key(key);
    match size(&written) + topic.len() > LARGEST {
        true => Err("it is larger than 10 MB with its attributes, and Pub/Sub takes no larger".into()),
        false => Ok(written),
    }
}

/// How large a message is at most in a request.
pub(super) fn size(message: &Message) -> usize {
    let attributes = message.attributes.iter().map(|(name, value)| name.len() + value.len() + PER_ATTRIBUTE);
    attributes.sum::<usize>() + message.data.len() + message.ordering_key.len() + PER_MESSAGE
}

fn add(attributes: &mut HashMap<String, String>, name: Cow<'_, str>, value: &str) -> Result<(), String> {
    let name = match name.starts_with("goog") || name.starts_with(PART) {
        true => Cow::Owned(format!("{CARRIED}{name}")),
        false => name,
    };
    if value.len() <= LONGEST_VALUE {
        return put(attributes, name.into_owned(), value);
    }
    let mut rest = value;
    for number in 0.. {
        let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST_VALUE));
        put(attributes, format!("{PART}{number}-{name}"), part)?;
        // What has no chance is not taken apart to its end.
        if after.is_empty() || number > MOST_ATTRIBUTES {
            break;
        }
        rest = after;
    }
    Ok(())
}

fn put(attributes: &mut HashMap<String, String>, name: String, value: &str) -> Result<(), String> {
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "the name of an attribute would be longer than {LONGEST_NAME} bytes, and Pub/Sub takes none"
        ));
    }
    attributes.insert(name, value.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, Source};
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    const TOPIC: &str = "projects/p/topics/t";

    fn message(headers: &[(&str, &str)]) -> ClaimedMessage {
        let lease = Lease { id: Uuid::nil(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "n".into(), "t".into(), Payload::Json("{}".into()));
        for (name, value) in headers {
            message.headers.insert((*name).to_owned(), (*value).to_owned());
        }
        message
    }

    fn written(message: &ClaimedMessage, ordered: bool) -> Result<Message, String> {
        let form = Form::new(Format::Plain, Source::DEFAULT, "ce-").expect("a form");
        write(&form, message, TOPIC, ordered)
    }

    /// What a consumer does.
    fn whole(message: &Message, name: &str) -> String {
        let part = |number: usize| message.attributes.get(&format!("{PART}{number}-{name}")).map(String::as_str);
        (0..).map_while(part).collect()
    }

    #[test]
    fn long_values_go_in_parts_that_make_the_whole() {
        let (short, long) = ("x".repeat(1_024), "aé🍷".repeat(500));
        let written = written(&message(&[("short", &short), ("long", &long)]), false).expect("sendable");
        assert_eq!(written.attributes.get("short"), Some(&short));
        assert_eq!(written.attributes.get("long"), None);
        assert_eq!(whole(&written, "long"), long);
        assert!(written.attributes.values().all(|value| value.len() <= LONGEST_VALUE));
        assert!(written.attributes.len() > 3 && written.attributes.contains_key("event_id"));
    }

    #[test]
    fn names_that_are_not_allowed_or_ours_are_carried() {
        let long = "x".repeat(2_000);
        let headers = [
            ("google", "1"),
            ("goog", &long),
            ("postrider-part-0-colour", "2"),
            ("postrider-header-google", "3"),
            ("", "4"),
        ];
        let written = written(&message(&headers), false).expect("sendable");
        let attribute = |name: &str| written.attributes.get(name).map(String::as_str);
        assert_eq!(attribute("postrider-header-google"), Some("1"));
        assert_eq!(whole(&written, "postrider-header-goog"), long);
        assert_eq!(attribute("postrider-header-postrider-part-0-colour"), Some("2"));
        assert_eq!(attribute("postrider-header-postrider-header-google"), Some("3"));
        assert!(!written.attributes.keys().any(|name| name.starts_with("goog")));
    }

    #[test]
    fn what_is_over_a_limit_is_refused() {
        let why = |message: &ClaimedMessage, ordered: bool| written(message, ordered).expect_err("unsendable");
        assert!(why(&message(&[(&"n".repeat(257), "v")]), false).contains("256 bytes"));
        assert!(why(&message(&[("n", &"v".repeat(1_024 * 101))]), false).contains("100 attributes"));
        let many: Vec<_> = (0..100).map(|number| format!("h{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), "v")).collect();
        assert!(why(&message(&many), false).contains("100 attributes"));
        let mut keyed = message(&[]);
        keyed.key = Some("k".repeat(1_025));
        assert!(why(&keyed, true).contains("1024 bytes"));
        assert_eq!(whole(&written(&keyed, false).expect("sendable"), "key"), "k".repeat(1_025));
        let mut large = message(&[]);
        large.payload = Payload::Bytes(vec![0; LARGEST]);
        assert!(why(&large, false).contains("10 MB"));
        large.payload = Payload::Bytes(vec![0; LARGEST - 2_000]);
        assert!(written(&large, false).is_ok());
    }

    #[test]
    fn the_key_orders_only_if_it_should() {
        let mut keyed = message(&[]);
        keyed.key = Some("k".into());
        assert_eq!(written(&keyed, true).expect("sendable").ordering_key, "k");
        assert_eq!(written(&keyed, false).expect("sendable").ordering_key, "");
        assert_eq!(written(&message(&[]), true).expect("sendable").ordering_key, "");
    }
}
