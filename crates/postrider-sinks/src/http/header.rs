//! The headers of a request. A producer's header goes as it is where it can; one that HTTP, Postrider or the operator has a
//! use for, or that HTTP could not carry as it is, goes percent-encoded under [`CARRIED`], so that it is neither obeyed nor
//! lost.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::format::CARRIED;

/// Many servers take no more than this in all.
const MOST_BYTES: usize = 64 * 1024;
const MOST_HEADERS: usize = 256;

/// What the HTTP binding of CloudEvents wants encoded in a value; all that is not ASCII is encoded anyway.
const VALUE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// What is encoded in a name; the percent sign itself is allowed in names.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Set by Postrider or by HTTP itself, so that not even an operator sets them.
const OURS: [&str; 16] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "http2-settings",
    "via",
];
const OUR_PREFIXES: [&str; 4] = ["ce-", "webhook-", "postrider-", "proxy-"];

/// Besides those: what proves who is asking, or changes what servers and proxies make of a request.
const NOT_FOR_PRODUCERS: [&str; 20] = [
    "authorization",
    "cookie",
    "cookie2",
    "set-cookie",
    "date",
    "origin",
    "referer",
    "range",
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-api-key",
    "x-host",
    "early-data",
    "max-forwards",
];
const PREFIXES_NOT_FOR_PRODUCERS: [&str; 6] = ["accept", "access-control-", "content-", "if-", "sec-", "x-forwarded-"];

/// Whether a header is set by Postrider or by HTTP itself.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    OURS.contains(&name) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_for_producers(name: &HeaderName) -> bool {
    let text = name.as_str();
    let reserved = NOT_FOR_PRODUCERS.contains(&text) || PREFIXES_NOT_FOR_PRODUCERS.iter().any(|p| text.starts_with(p));
    !reserved && !is_ours(name)
}

/// Headers that are being put together.
pub(super) struct Headers<'a> {
    configured: &'a HeaderMap,
    map: HeaderMap,
    bytes: usize,
}

impl<'a> Headers<'a> {
    /// Begins with the operator's.
    pub(super) fn new(configured: &'a HeaderMap) -> Self {
        Self { configured, map: configured.clone(), bytes: 0 }
    }

    /// One of ours; the value is percent-encoded.
    pub(super) fn ours(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "one of its headers cannot be sent")?;
        self.put(name, &utf8_percent_encode(value, VALUE).to_string())
    }

    /// One of ours whose value must go as it is; says whether it could.
    pub(super) fn ours_as_it_is(&mut self, name: &'static str, value: &str) -> Result<bool, String> {
        let plain = is_plain(value);
        if plain {
            self.put(HeaderName::from_static(name), value)?;
        }
        Ok(plain)
    }

    /// One of the producer's.
    pub(super) fn producers(&mut self, name: &str, value: &str) -> Result<(), String> {
        let known = HeaderName::from_bytes(name.as_bytes()).ok();
        let usable = known.filter(|name| is_for_producers(name) && !self.configured.contains_key(name));
        match usable.filter(|_| is_plain(value)) {
            Some(name) => self.put(name, value),
            None => self.carry(name, value),
        }
    }

    /// One of the producer's, under a prefix and encoded.
    pub(super) fn carry(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = format!("{CARRIED}{}", utf8_percent_encode(&name.to_ascii_lowercase(), NAME));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "one of its headers has too long a name")?;
        self.put(name, &utf8_percent_encode(value, VALUE).to_string())
    }

    fn put(&mut self, name: HeaderName, value: &str) -> Result<(), String> {
        self.bytes += name.as_str().len() + value.len() + 4;
        if self.bytes > MOST_BYTES || self.map.len() >= MOST_HEADERS {
            return Err(format!("its headers are more than {MOST_BYTES} bytes or {MOST_HEADERS} lines in HTTP"));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| "one of its headers cannot be sent")?;
        // Messages are nobody's business but the receiver's.
        value.set_sensitive(true);
        self.map.append(name, value);
        Ok(())
    }

    pub(super) fn finish(self) -> HeaderMap {
        self.map
    }
}

/// Whether a value arrives as it was sent: printable ASCII, and no spaces at its ends.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|b| matches!(b, b' '..=b'~')) && value.trim().len() == value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str, value: &str) -> Vec<(String, String)> {
        let configured = HeaderMap::from_iter([(HeaderName::from_static("x-tenant"), HeaderValue::from_static("t"))]);
        let mut headers = Headers::new(&configured);
        headers.producers(name, value).expect("it fits");
        let map = headers.finish();
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        map.iter().map(|(name, value)| (name.to_string(), text(value))).filter(|(name, _)| name != "x-tenant").collect()
    }

    #[test]
    fn s05_a_producers_header_is_neither_obeyed_nor_lost() {
        for (name, value, sent_name, sent_value) in [
            ("colour", "deep red", "colour", "deep red"),
            ("X-Colour", "50%", "x-colour", "50%"),
            ("colour", "grün", "postrider-header-colour", "gr%C3%BCn"),
            ("colour", "a\r\nhost: evil", "postrider-header-colour", "a%0D%0Ahost:%20evil"),
            ("colour", " red", "postrider-header-colour", "%20red"),
            ("a\r\nb", "c", "postrider-header-a%0d%0ab", "c"),
            ("", "c", "postrider-header-", "c"),
            ("host", "evil", "postrider-header-host", "evil"),
            ("Content-Length", "0", "postrider-header-content-length", "0"),
            ("transfer-encoding", "chunked", "postrider-header-transfer-encoding", "chunked"),
            ("connection", "close", "postrider-header-connection", "close"),
            ("authorization", "Bearer x", "postrider-header-authorization", "Bearer%20x"),
            ("proxy-authorization", "x", "postrider-header-proxy-authorization", "x"),
            ("cookie", "a=b", "postrider-header-cookie", "a=b"),
            ("ce-id", "1", "postrider-header-ce-id", "1"),
            ("webhook-signature", "v1,x", "postrider-header-webhook-signature", "v1,x"),
            ("postrider-attempt", "9", "postrider-header-postrider-attempt", "9"),
            ("x-forwarded-for", "10.0.0.1", "postrider-header-x-forwarded-for", "10.0.0.1"),
            ("x-tenant", "other", "postrider-header-x-tenant", "other"),
            ("content-encoding", "gzip", "postrider-header-content-encoding", "gzip"),
            ("accept-encoding", "gzip", "postrider-header-accept-encoding", "gzip"),
            ("expect", "100-continue", "postrider-header-expect", "100-continue"),
        ] {
            assert_eq!(sent(name, value), [(sent_name.to_owned(), sent_value.to_owned())], "{name:?} {value:?}");
        }
    }

    #[test]
    fn s05_too_much_of_it_is_refused() {
        let configured = HeaderMap::new();
        let mut headers = Headers::new(&configured);
        assert!(headers.producers("a", &"x".repeat(70_000)).is_err());
        let mut headers = Headers::new(&configured);
        assert!(headers.producers(&"a".repeat(70_000), "x").is_err());
        let mut headers = Headers::new(&configured);
        assert!((0..40_000).try_for_each(|at| headers.producers(&format!("a{at}"), "x")).is_err());
    }
}
