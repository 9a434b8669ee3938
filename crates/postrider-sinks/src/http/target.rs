//! The URL of a message. Whatever a message holds, its URL begins with the operator's prefix: scheme, host, port and path
//! are never the message's choice.
//!
//! A field becomes one path segment in which everything but letters, digits and `-._~` is percent-encoded. The URL that
//! comes out is parsed, and must come back from the parser unchanged: dot segments and anything else that a parser would
//! resolve, drop or move are found by that, without a list of tricks. Some servers decode a path before they resolve dots in
//! it, so it must not climb when it is decoded, either.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{percent_decode_str, utf8_percent_encode};
use postrider_core::{ClaimedMessage, Destination};
use reqwest::Url;
use url::Host;

use crate::format::cloudevent::SEGMENT;
use crate::problem::ConfigProblem;

/// Longer URLs are refused by most servers.
const LONGEST_URL: usize = 8_000;

/// Scheme, host and port.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub https: bool,
    pub host: Host<String>,
    pub port: u16,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.https { "https" } else { "http" }, self.host, self.port)
    }
}

/// A destination that was checked.
pub(super) struct Target {
    destination: Destination,
    pub origin: Origin,
}

fn problem(what: &str) -> ConfigProblem {
    ConfigProblem::new("destination", what)
}

impl Target {
    /// Checks a destination. Paths may hold tokens, so errors do not repeat it.
    pub(super) fn new(destination: &Destination) -> Result<Self, ConfigProblem> {
        let prefix = destination.prefix();
        let scheme = prefix.find("://").ok_or_else(|| problem("it must begin with https:// or http:// and a host"))?;
        let authority = scheme + 3;
        let end = prefix[authority..].find(['/', '?', '#', '\\']).map(|at| authority + at);
        if end.is_none() && !destination.is_fixed() {
            return Err(problem("a field must not be part of the host; write at least a / before the first field"));
        }
        let end = end.unwrap_or(prefix.len());
        let origin_text = &prefix[..end];
        if origin_text.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '%' | '\\')) {
            return Err(problem("its host holds a character that no host has"));
        }
        if origin_text.contains('@') {
            return Err(problem("user and password in a URL are refused; use an authorization header in headers"));
        }
        let root = Url::parse(&format!("{origin_text}/")).map_err(|_| problem("it is no URL"))?;
        let origin = origin(&root)?;
        let text = destination.to_string();
        let rest = match &text[end..] {
            "" => "/",
            rest if rest.starts_with('/') => rest,
            _ => return Err(problem("write a / after the host")),
        };
        check_rest(&root, rest)?;
        // The host in the parser's spelling, so that the parser leaves it alone from now on.
        let text = format!("{}{}", root.as_str().trim_end_matches('/'), rest);
        let destination = text.parse().map_err(|_| problem("it is no destination"))?;
        Ok(Self { destination, origin })
    }

    /// The URL of a message, or what is wrong with the message.
    pub(super) fn url(&self, message: &ClaimedMessage) -> Result<Url, String> {
        let text = self.destination.of(message, segment)?;
        if text.len() > LONGEST_URL {
            return Err(format!("its URL would be longer than {LONGEST_URL} bytes"));
        }
        let url = Url::parse(&text).map_err(|_| LEAVES.to_owned())?;
        match url.as_str() == text && !climbs(url.path()) {
            true => Ok(url),
            false => Err(LEAVES.into()),
        }
    }
}

/// How often a path is decoded on its way, at most: by a proxy, by a server, and by a program that should not.
const DECODED: usize = 3;

/// Whether a path has dot segments for anybody who decodes it.
fn climbs(path: &str) -> bool {
    let is_dots = |segment: &str| {
        let name = segment.split(';').next().unwrap_or_default();
        matches!(name.trim_matches(|c: char| c.is_control() || c.is_whitespace()), "." | "..")
    };
    let mut text = path.to_owned();
    for _ in 0..DECODED {
        text = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if text.split(['/', '\\']).any(is_dots) {
            return true;
        }
    }
    false
}

const LEAVES: &str = "its fields would lead outside of the destination's path";

fn origin(root: &Url) -> Result<Origin, ConfigProblem> {
    let https = match root.scheme() {
        "https" => true,
        "http" => false,
        _ => return Err(problem("only https:// and http:// are possible")),
    };
    let host = root.host().ok_or_else(|| problem("it has no host"))?.to_owned();
    let port = root.port_or_known_default().filter(|port| *port != 0);
    Ok(Origin { https, host, port: port.ok_or_else(|| problem("it has no port that can be connected to"))? })
}

/// The operator's own text must survive the parser as well, with a letter in place of each field.
fn check_rest(root: &Url, rest: &str) -> Result<(), ConfigProblem> {
    if rest.contains('#') {
        return Err(problem("what follows # is never sent; remove it"));
    }
    let mut sample = rest.to_owned();
    for field in ["{namespace}", "{topic}", "{key}", "{tenant}"] {
        sample = sample.replace(field, "x");
    }
    let sample = format!("{}{sample}", root.as_str().trim_end_matches('/'));
    match Url::parse(&sample) {
        Ok(url) if url.as_str() == sample => Ok(()),
        _ => Err(problem("its path holds . or .. as a segment, or characters that must be percent-encoded")),
    }
}

fn segment(value: &str) -> Result<Cow<'_, str>, String> {
    match value {
        "" => Err("a field of its destination is empty".into()),
        value => Ok(utf8_percent_encode(value, SEGMENT).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    fn target(text: &str) -> Result<Target, ConfigProblem> {
        Target::new(&text.parse().expect("a destination"))
    }

    fn message(topic: &str) -> ClaimedMessage {
        let lease = Lease { id: Uuid::nil(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        ClaimedMessage::new(lease, "shop".into(), topic.into(), Payload::Json("{}".into()))
    }

    #[test]
    fn destinations_are_urls() {
        for (text, expected) in [
            ("https://example.com", "https://example.com/"),
            ("HTTPS://Example.COM:443/Hooks", "https://example.com/Hooks"),
            ("https://example.com:8443/{namespace}/{topic}", "https://example.com:8443/shop/order.placed"),
            ("https://example.com/a?topic={topic}", "https://example.com/a?topic=order.placed"),
            ("https://example.com/.well-known/{topic}.json", "https://example.com/.well-known/order.placed.json"),
            ("http://[::1]:80/x", "http://[::1]/x"),
            ("https://bücher.example/{topic}", "https://xn--bcher-kva.example/order.placed"),
        ] {
            let url = target(text).expect(text).url(&message("order.placed")).expect(text);
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn s06_destinations_that_are_no_safe_urls_are_refused() {
        for text in [
            "orders",
            "{topic}",
            "ftp://example.com/",
            "file:///etc/passwd",
            "https:///x",
            "https://",
            "https:example.com",
            "https://{topic}",
            "https://{topic}/x",
            "https://example.com{topic}",
            "https://example.com.{topic}/x",
            "https://user:canary@example.com/",
            "https://canary@example.com/{topic}",
            "https://example.com@evil.example/",
            "https://example.com\\@evil.example/",
            "https://exa%6dple.com/",
            "https://[fe80::1%25eth0]/",
            "https://exam\tple.com/",
            "https://exam ple.com/",
            "https://example.com?x={topic}",
            "https://example.com#x",
            "https://example.com/x#y",
            "https://example.com/a/../{topic}",
            "https://example.com/./{topic}",
            "https://example.com/%2e%2e/{topic}",
            "https://example.com/a b",
            "https://example.com/a\\b",
            "https://example.com:0/",
            "https://example.com:99999/",
            "https://256.256.256.256/",
        ] {
            let problem = target(text).err().unwrap_or_else(|| panic!("{text} is let through"));
            assert_eq!(problem.field, "destination");
            assert!(!problem.to_string().contains("canary"), "{problem}");
        }
    }

    #[test]
    fn s06_no_message_leaves_the_prefix() {
        let prefix = "https://example.com/hooks/";
        let targets =
            ["{topic}", "{topic}/x", "a{topic}", "{namespace}/{topic}", "x?t={topic}", ".{topic}", "{topic}{topic}"];
        let tricks = [
            ".",
            "..",
            "%2e",
            "%2e%2e",
            "%2E%2E",
            ".%2e",
            "%252e%252e",
            "../",
            "../../admin",
            "..\\..\\admin",
            "/",
            "//",
            "//evil.example",
            "/etc",
            "\\",
            "\\\\evil.example",
            "@evil.example",
            ":pass@evil.example",
            "?x=1",
            "#x",
            "a/b",
            "a%2fb",
            "a%2Fb",
            "a%5cb",
            ";/..",
            "..;",
            "..%00",
            "a\nb",
            "a\r\nHost: evil.example",
            "\t..",
            " ..",
            "..\t",
            "\u{0}",
            "\u{2024}\u{2024}",
            "．．",
            "ä/ö",
            "http://evil.example/",
            "",
            "&x=y",
            "{topic}",
            "\u{202e}",
            "\u{feff}",
            "%",
        ];
        for template in targets {
            let target = target(&format!("{prefix}{template}")).expect(template);
            let segments = Url::parse(&format!("{prefix}{}", template.replace(['{', '}'], "")));
            let segments = segments.expect(template).path_segments().expect("segments").count();
            for trick in tricks {
                let Ok(url) = target.url(&message(trick)) else { continue };
                assert!(url.as_str().starts_with(prefix), "{template} {trick:?} {url}");
                assert_eq!((url.scheme(), url.host_str(), url.port()), ("https", Some("example.com"), None));
                assert_eq!((url.username(), url.password(), url.fragment()), ("", None, None), "{template} {trick:?}");
                assert_eq!(url.path_segments().expect("segments").count(), segments, "{template} {trick:?} {url}");
                assert_eq!(url.query().is_some(), template.contains('?'), "{template} {trick:?}");
                let decoded = percent_decode_str(url.path()).decode_utf8_lossy().replace('\\', "/");
                let resolved = Url::parse(&format!("https://example.com{decoded}")).expect("a URL");
                assert!(resolved.as_str().starts_with(prefix), "{template} {trick:?} decoded");
                assert!(!url.as_str().contains(|c: char| c.is_control() || c == '\\'), "{template} {trick:?}");
            }
        }
        for (template, trick) in [
            ("{topic}", ""),
            ("{topic}", "."),
            ("{topic}", ".."),
            (".{topic}", "."),
            (".{topic}", "./admin"),
            ("a/{topic}/b", ".."),
            ("{topic}", "../../admin"),
            ("{topic}", "..\\..\\admin"),
            ("{topic}", "a/../../../admin"),
            ("{topic}", "%2e%2e"),
            ("{topic}", "%2e%2e%2fadmin"),
            ("{topic}", "%252e%252e"),
            ("{topic}", "..;/admin"),
            ("{topic}", "..\u{1}/admin"),
        ] {
            let target = target(&format!("{prefix}{template}")).expect(template);
            assert!(target.url(&message(trick)).is_err(), "{template} {trick:?}");
        }
        for (template, good) in [("{topic}", "a/b"), ("a.{topic}", ".."), ("x?t={topic}", ".."), ("{topic}", "...")] {
            let target = target(&format!("{prefix}{template}")).expect(template);
            assert!(target.url(&message(good)).is_ok(), "{template} {good:?}");
        }
        let target = target(&format!("{prefix}{{topic}}")).expect("a template");
        assert!(target.url(&message(&"x".repeat(9_000))).expect_err("long").contains("longer"));
        assert_eq!(target.url(&message("a b/ü")).expect("encoded").path(), "/hooks/a%20b%2F%C3%BC");
    }
}
