//! Headers as NATS can carry them, without loss.
//!
//! A name is printable ASCII without a colon, a value has no line break, and clients drop the space around a value. So
//! what does not fit, and `%` itself, is percent-encoded: a consumer that percent-decodes names and values has exactly
//! what the producer wrote. In CloudEvents attributes everything but printable ASCII is encoded, as their protocol
//! bindings say.
//!
//! Some names are orders to the server (`Nats-Rollup` empties a subject) or are read by clients as if the server had said
//! them, and clients pass over a header without a name. A producer's header of such a name goes under [`CARRIED`], so that
//! it is neither obeyed nor lost.

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::format::{CARRIED, Content, begins_with};

/// What goes before the name of a CloudEvents attribute.
pub(super) const PREFIX: &str = "ce-";

/// The longest block of headers that the servers take.
const LARGEST: usize = 65_535;

const NAME: &AsciiSet = &CONTROLS.add(b' ').add(b':').add(b'%');
const ATTRIBUTE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The headers of a message, or what is wrong with them.
pub(super) fn of(content: &Content<'_>, id: &str, stream: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut size = 12;
    let mut put = |name: String, value: String| -> Result<(), String> {
        size += name.len() + value.len() + 4;
        let name: HeaderName = name.try_into().map_err(|_| "one of its headers has a name that NATS cannot carry")?;
        let value: HeaderValue = value.parse().map_err(|_| "one of its headers has a value that NATS cannot carry")?;
        headers.insert(name, value);
        Ok(())
    };
    put("Nats-Msg-Id".into(), id.to_owned())?;
    if let Some(stream) = stream {
        put("Nats-Expected-Stream".into(), stream.to_owned())?;
    }
    for (name, given) in &content.headers {
        let carried = if is_reserved(name) { CARRIED } else { "" };
        put(format!("{carried}{}", utf8_percent_encode(name, NAME)), value(name, given))?;
    }
    match size > LARGEST {
        true => Err("its headers are larger than 65,535 bytes together, which is all that NATS carries".into()),
        false => Ok(headers),
    }
}

fn is_reserved(name: &str) -> bool {
    begins_with(name, "nats-") || ["", "status", "description"].iter().any(|taken| name.eq_ignore_ascii_case(taken))
}

fn value(name: &str, given: &str) -> String {
    if name.starts_with(PREFIX) {
        return utf8_percent_encode(given, ATTRIBUTE).to_string();
    }
    let text = |c: char| !c.is_whitespace();
    let (first, last) = (given.find(text).unwrap_or(given.len()), given.rfind(text).unwrap_or(0));
    let mut value = String::with_capacity(given.len());
    for (at, c) in given.char_indices() {
        let around = c.is_whitespace() && (at < first || at > last);
        // Some readers take these two for the end of a line.
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        match around || breaks || c == '%' || c.is_control() {
            true => value.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC)),
            false => value.push(c),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use percent_encoding::percent_decode_str;

    use super::*;

    fn written(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let headers = headers.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect();
        let content = Content { body: Cow::Borrowed(b""), content_type: Cow::Borrowed("x"), headers };
        of(&content, "the-id", Some("ORDERS")).expect("headers")
    }

    #[test]
    fn s05_any_text_is_carried_on_one_line_and_comes_back_as_it_was() {
        for text in [
            "rosé 🍷",
            "",
            " ",
            "  a\u{a0}",
            "a\r\nNats-Rollup: all",
            "100%",
            "%0d",
            "a\tb",
            "\0\u{85}\u{2028}x",
            "a:b",
        ] {
            let headers = written(&[("colour", text)]);
            let value = headers.get("colour").expect("it is there").as_str();
            assert!(!value.contains(|c: char| c.is_control() || c == '\u{2028}'), "{value:?}");
            assert_eq!(value.trim(), value);
            assert_eq!(percent_decode_str(value).decode_utf8().expect("text"), text);
        }
        assert_eq!(written(&[("colour", "rosé 🍷")]).get("colour").map(HeaderValue::as_str), Some("rosé 🍷"));
        assert_eq!(written(&[("ce-type", "rosé x")]).get("ce-type").map(HeaderValue::as_str), Some("ros%C3%A9%20x"));
        for name in ["a b", "ä", "a:b", "a%b", "a\nb"] {
            let headers = written(&[(name, "x")]);
            let names: Vec<_> = headers.iter().map(|(name, _)| name.to_string()).collect();
            assert!(names.iter().any(|n| percent_decode_str(n).decode_utf8().expect("text") == name), "{names:?}");
        }
    }

    #[test]
    fn s05_no_producer_gives_the_server_orders() {
        let orders = [
            "Nats-Rollup",
            "nats-msg-id",
            "Nats-Expected-Last-Sequence",
            "NATS-TTL",
            "Nats-Expected-Stream",
            "Status",
            "DESCRIPTION",
            "",
        ];
        for order in orders {
            let headers = written(&[(order, "mine")]);
            assert_eq!(headers.get(format!("{CARRIED}{order}").as_str()).map(HeaderValue::as_str), Some("mine"));
            assert!(headers.get(order).is_none_or(|value| value.as_str() != "mine"), "{order}");
            assert_eq!(headers.get("Nats-Msg-Id").map(HeaderValue::as_str), Some("the-id"));
            assert_eq!(headers.get("Nats-Expected-Stream").map(HeaderValue::as_str), Some("ORDERS"));
        }
    }
}
