//! Names of topics: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`.

use postrider_core::{ClaimedMessage, Destination};
use std::borrow::Cow;

use crate::problem::ConfigProblem;

const LONGEST: usize = 249;

/// The topic of a message. What is wrong with it is wrong for good.
pub(super) fn of<'a>(destination: &'a Destination, message: &'a ClaimedMessage) -> Result<Cow<'a, str>, String> {
    let name = destination.of(message, |value| Ok(Cow::Borrowed(value)))?;
    match problem(&name) {
        None => Ok(name),
        Some(problem) => Err(format!("its destination is no name of a topic: {problem}")),
    }
}

/// Checks what is known of a route's topics before there is a message.
pub(super) fn check(destination: &Destination) -> Result<(), ConfigProblem> {
    let written = destination.to_string();
    let found = match destination.is_fixed() {
        true => problem(&written),
        false => {
            let texts = written.split('{').map(|part| part.split_once('}').map_or(part, |(_, text)| text));
            let texts: String = texts.collect();
            characters(&texts).or((texts.len() > LONGEST).then_some(LENGTH))
        }
    };
    found.map_or(Ok(()), |what| Err(ConfigProblem::new("destination", format!("it is no name of a topic: {what}"))))
}

const LENGTH: &str = "names are at most 249 characters long";

fn problem(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        "." | ".." => Some("it is . or .., which Kafka refuses"),
        _ if name.len() > LONGEST => Some(LENGTH),
        _ => characters(name),
    }
}

fn characters(text: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (!text.bytes().all(allowed)).then_some("names consist of ASCII letters, digits, points, underscores and hyphens")
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, Payload, RowAddress};

    #[test]
    fn names_are_those_that_kafka_takes() {
        for good in ["orders", "a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert_eq!(problem(good), None, "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0", "a*", &"x".repeat(250)] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_route_is_checked_as_far_as_it_is_known() {
        let check = |text: &str| check(&text.parse().expect("a destination")).map_err(|problem| problem.field);
        for good in ["orders", "{topic}", "events.{namespace}.{topic}"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["..", "my orders", "events/{topic}", "events.{namespace}/{topic}"] {
            assert_eq!(check(bad), Err("destination".into()), "{bad}");
        }
    }

    #[test]
    fn a_name_from_data_is_checked_for_each_message() {
        let lease =
            Lease { id: uuid::Uuid::nil(), worker: uuid::Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "order.placed".into(), Payload::Json("1".into()));
        let destination: Destination = "events.{topic}".parse().expect("a destination");
        assert_eq!(of(&destination, &message).as_deref(), Ok("events.order.placed"));
        message.topic = "order placed".into();
        let why = of(&destination, &message).expect_err("a space");
        assert!(why.contains("ASCII letters") && !why.contains("order placed"), "{why}");
    }
}
