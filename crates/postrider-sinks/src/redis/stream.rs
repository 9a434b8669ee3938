//! The stream of a message: the operator's text with a message's fields in it, which cannot leave the operator's prefix.
//!
//! Redis takes any bytes for a key. Control characters are refused all the same, because such a key cannot be read in a
//! terminal or a log.

use std::borrow::Cow;

use postrider_core::{ClaimedMessage, Destination};

const LONGEST: usize = 1_024;

/// The stream of a message, or what is wrong with it.
pub(super) fn of<'a>(destination: &'a Destination, message: &'a ClaimedMessage) -> Result<Cow<'a, str>, String> {
    let stream = destination.of(message, |value| match value.is_empty() {
        true => Err("a field of its stream's name is empty".into()),
        false => Ok(Cow::Owned(value.to_owned())),
    })?;
    check(&stream).map_err(|what| format!("the name of its stream {what}"))?;
    Ok(stream)
}

/// Whether a destination can name streams: what is the same for all messages is checked here.
pub(super) fn check_destination(destination: &Destination) -> Result<(), String> {
    check(&destination.to_string()).map_err(|what| format!("it {what}; write a name such as orders:{{topic}}"))
}

fn check(name: &str) -> Result<(), &'static str> {
    match name {
        _ if name.trim().is_empty() => Err("is empty"),
        _ if name.len() > LONGEST => Err("is longer than 1,024 bytes"),
        _ if name.chars().any(char::is_control) => Err("has a control character"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn s04_a_message_names_no_stream_outside_of_the_operators_prefix() {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "order.placed".into(), Payload::Json("{}".into()));
        let destination: Destination = "shop:{topic}:{key}".parse().expect("a destination");
        for (key, good) in
            [("7", true), ("größe {x}", true), ("../x", true), ("", false), ("a\r\nb", false), ("\u{0}", false)]
        {
            message.key = Some(key.into());
            let stream = of(&destination, &message);
            assert_eq!(stream.is_ok(), good, "{key:?}");
            assert!(stream.is_err() || stream.is_ok_and(|stream| stream == format!("shop:order.placed:{key}")));
        }
        message.key = Some("x".repeat(1_100));
        assert!(of(&destination, &message).is_err());
        for bad in [" ", "a\nb", "\u{7f}{topic}"] {
            assert!(check_destination(&bad.parse().expect(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(check_destination(&destination), Ok(()));
    }
}
