//! The subject of a message, which cannot leave the operator's prefix.
//!
//! Dots separate the tokens of a subject. A topic may have several (`order.placed`); any other field is one token, so
//! that a key cannot slip a token of its own into a subject. Whatever NATS gives a meaning (wildcards, spaces, names of
//! the server's own) is refused, in an operator's text as well as in a message.

use std::borrow::Cow;

use postrider_core::{ClaimedMessage, Destination};

/// The server closes a connection on which a longer line than 4 KB comes, so that one message would fail the others.
const LONGEST: usize = 1_024;

/// Subjects that begin so belong to the server and to clients that wait for answers.
const RESERVED: [&str; 2] = ["$", "_INBOX."];

/// The subject of a message, or what is wrong with it.
pub(super) fn of<'a>(destination: &'a Destination, message: &'a ClaimedMessage) -> Result<Cow<'a, str>, String> {
    // The field is the topic itself and not a key of the same text.
    let is_topic = |value: &str| std::ptr::eq(value, message.topic.as_str());
    let subject = destination.of(message, |value| match value.contains('.') && !is_topic(value) {
        true => Err("a field of its subject has a dot, which only a topic may have".into()),
        false if value.is_empty() => Err("a field of its subject is empty".into()),
        false => Ok(Cow::Owned(value.to_owned())),
    })?;
    match check(&subject) {
        Ok(()) => Ok(subject),
        Err(what) => Err(format!("its subject {what}")),
    }
}

/// Whether a destination can name subjects: what is the same for all messages is checked here.
pub(super) fn check_destination(destination: &Destination) -> Result<(), String> {
    // A field stands for something good; whether it is, is seen with each message.
    let mut sample = destination.to_string();
    for field in ["{namespace}", "{topic}", "{key}", "{tenant}"] {
        sample = sample.replace(field, "x");
    }
    check(&sample).map_err(|what| format!("it {what}; write a subject such as orders.{{topic}}"))
}

fn check(subject: &str) -> Result<(), &'static str> {
    if subject.len() > LONGEST {
        return Err("is longer than 1,024 bytes");
    }
    if RESERVED.iter().any(|prefix| subject.starts_with(prefix)) {
        return Err("begins with $ or _INBOX, which belong to NATS");
    }
    if subject.contains(['*', '>']) {
        return Err("has a wildcard");
    }
    if subject.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("has a space or a control character");
    }
    match subject.split('.').any(str::is_empty) {
        true => Err("has an empty token"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    use super::*;

    fn subject(template: &str, topic: &str, key: &str) -> Result<String, String> {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), topic.into(), Payload::Json("{}".into()));
        message.key = Some(key.into());
        let destination: Destination = template.parse().expect(template);
        of(&destination, &message).map(Cow::into_owned)
    }

    #[test]
    fn a_topic_may_have_tokens_and_a_key_is_one() {
        assert_eq!(subject("{topic}", "order.placed", "7").as_deref(), Ok("order.placed"));
        assert_eq!(subject("shop.{topic}.{key}", "order.placed", "7").as_deref(), Ok("shop.order.placed.7"));
        assert_eq!(subject("shop.{key}", "t", "größe:ü").as_deref(), Ok("shop.größe:ü"));
        assert_eq!(subject("fixed", "bad topic", "*").as_deref(), Ok("fixed"));
    }

    #[test]
    fn s04_no_message_leaves_the_operators_prefix_or_means_more_than_one_subject() {
        for topic in ["*", "a.>", ">", "a b", "a\tb", "a\r\nPUB x 0", "a\u{0}", "a..b", ".a", "a.", "", "\u{a0}"] {
            assert!(subject("{topic}", topic, "k").is_err(), "{topic:?}");
            assert!(subject("shop.{topic}", topic, "k").is_err(), "{topic:?}");
        }
        for key in ["a.b", ".", "*", ">", "", " ", "a\nb", "a.admin.b"] {
            assert!(subject("shop.{key}.public", "t", key).is_err(), "{key:?}");
        }
        assert!(subject("shop.{key}", "a.b", "a.b").is_err(), "also if it is like the topic");
        for topic in ["$JS.API.STREAM.PURGE.ORDERS", "$SYS.x", "_INBOX.abc"] {
            assert!(subject("{topic}", topic, "k").is_err(), "{topic:?}");
            assert!(subject("shop.{topic}", topic, "k").is_ok(), "behind a prefix it is only a name: {topic:?}");
        }
        assert!(subject("shop.{topic}", &"x".repeat(1_100), "k").is_err());
    }

    #[test]
    fn an_operators_text_is_checked_before_there_are_messages() {
        for good in ["orders", "orders.{topic}", "{topic}", "a.{namespace}.{key}.{tenant}"] {
            assert_eq!(check_destination(&good.parse().expect(good)), Ok(()), "{good}");
        }
        for bad in ["orders.*", "orders.>", "a b", "$JS.x", "_INBOX.x", "a..{topic}", "a.", ".a", "a\n"] {
            assert!(check_destination(&bad.parse().expect(bad)).is_err(), "{bad:?}");
        }
    }
}
