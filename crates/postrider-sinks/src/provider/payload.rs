//! What a message says, the same for all providers.
//!
//! ```json
//! {
//!   "text": "Your order has left.",
//!   "links": [{ "title": "Track it", "url": "https://example.com/t/7" }],
//!   "providers": { "slack": { "thread_ts": "1503435956.000247" } }
//! }
//! ```
//!
//! `text` is plain text: no provider reads markup in it as far as it can be told not to. `links` are shown below it,
//! one per line. `providers` holds what only one provider knows; its object is added to the request to that provider,
//! and the others do not see it. Any other field is refused: a misspelt one must not become a message without what was
//! meant.

use std::collections::BTreeMap;
use std::fmt;

use postrider_core::Payload;
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

/// The most links of a message.
const MOST_LINKS: usize = 20;

/// What a message says. See the guide for its JSON.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Normalised {
    /// Plain text; never blank.
    pub text: String,
    /// Links to show below the text, instead of attachments.
    #[serde(default)]
    pub links: Vec<Link>,
    /// By provider: fields for its request.
    #[serde(default)]
    pub providers: BTreeMap<String, Map<String, Value>>,
}

/// A link below the text.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Link {
    /// An address that begins with `https://` or `http://`.
    pub url: String,
    /// What is behind it.
    #[serde(default)]
    pub title: Option<String>,
}

impl Normalised {
    /// Reads a payload, or says what is wrong with it without repeating any of it.
    pub fn of(payload: &Payload) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(payload.as_bytes()).map_err(|error| match error.classify() {
            // serde's own words may quote the payload.
            serde_json::error::Category::Data => format!(
                "its payload is not {{\"text\": …, \"links\": […], \"providers\": {{…}}}}: a field is missing, unknown, given \
                 twice or of the wrong type before line {} column {}",
                error.line(),
                error.column()
            ),
            _ => "its payload is not JSON".to_owned(),
        })?;
        if read.text.trim().is_empty() {
            return Err("the text of its payload is blank".into());
        }
        if read.links.len() > MOST_LINKS {
            return Err(format!("its payload has more than {MOST_LINKS} links"));
        }
        match read.links.iter().position(|link| !link.is_web()) {
            Some(at) => Err(format!("links[{at}] of its payload is no https:// or http:// address")),
            None => Ok(read),
        }
    }

    /// The text with the links below it.
    pub fn plain(&self) -> String {
        let mut text = self.text.clone();
        for (at, link) in self.links.iter().enumerate() {
            text.push_str(if at == 0 { "\n\n" } else { "\n" });
            if let Some(title) = link.title.as_deref().filter(|title| !title.is_empty()) {
                text.push_str(title);
                text.push_str(": ");
            }
            text.push_str(&link.url);
        }
        text
    }

    /// The fields that are for one provider only.
    pub fn for_provider(&self, provider: &str) -> Option<&Map<String, Value>> {
        self.providers.get(provider)
    }

    /// Adds a provider's own fields to a request, over what is there. Who gets it is not theirs to say.
    pub(super) fn extend(
        &self,
        request: &mut Map<String, Value>,
        provider: &str,
        fixed: &[&str],
    ) -> Result<(), String> {
        let Some(fields) = self.for_provider(provider) else { return Ok(()) };
        if let Some(field) = fixed.iter().find(|field| fields.contains_key(**field)) {
            return Err(format!("its payload sets {field} for its provider, which the adapter sets itself"));
        }
        request.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(())
    }
}

impl Link {
    fn is_web(&self) -> bool {
        Url::parse(&self.url).is_ok_and(|url| matches!(url.scheme(), "https" | "http") && url.has_host())
    }
}

/// What a message says is in no log.
impl fmt::Debug for Normalised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<text of {} bytes, {} links>", self.text.len(), self.links.len())
    }
}

/// Addresses may hold tokens.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<link>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Normalised, String> {
        Normalised::of(&Payload::Json(text.into()))
    }

    #[test]
    fn links_come_below_the_text() {
        let payload = read(
            r#"{"text": "Hi", "links": [{"url": "https://a.example/", "title": "A"}, {"url": "http://b.example/x"}]}"#,
        );
        assert_eq!(payload.expect("good").plain(), "Hi\n\nA: https://a.example/\nhttp://b.example/x");
        assert_eq!(read(r#"{"text": " Hi\n"}"#).expect("good").plain(), " Hi\n", "text is left as it is");
        let bytes = Payload::Bytes(br#"{"text": "Hi"}"#.to_vec());
        assert_eq!(Normalised::of(&bytes).expect("JSON as bytes is JSON").plain(), "Hi");
    }

    #[test]
    fn what_is_not_of_the_shape_is_refused_and_not_repeated() {
        for (text, expected) in [
            ("canary", "not JSON"),
            (r#"{"text": "canary"#, "not JSON"),
            (r#""canary""#, "is not {"),
            ("[]", "is not {"),
            ("null", "is not {"),
            (r#"{"text": 5}"#, "is not {"),
            (r#"{"txt": "canary"}"#, "is not {"),
            (r#"{"text": "a", "canary": 1}"#, "is not {"),
            (r#"{"text": "a", "text": "canary"}"#, "is not {"),
            (r#"{"text": "a", "links": ["canary"]}"#, "is not {"),
            (r#"{"text": "a", "links": [{"url": "https://x.example", "canary": 1}]}"#, "is not {"),
            (r#"{"text": "a", "providers": {"slack": "canary"}}"#, "is not {"),
            (r#"{"text": " \n"}"#, "blank"),
            (r#"{"text": "a", "links": [{"url": "javascript:canary"}]}"#, "links[0]"),
            (r#"{"text": "a", "links": [{"url": "https://a.example"}, {"url": "canary"}]}"#, "links[1]"),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(expected) && !problem.contains("canary"), "{text}: {problem}");
        }
    }

    #[test]
    fn a_providers_fields_are_added_and_do_not_choose_the_recipient() {
        let payload =
            read(r#"{"text": "a", "providers": {"slack": {"mrkdwn": true, "blocks": []}, "sms": {"to": 1}}}"#);
        let payload = payload.expect("good");
        let mut request = Map::from_iter([("text".to_owned(), "a".into()), ("mrkdwn".to_owned(), false.into())]);
        payload.extend(&mut request, "slack", &["channel"]).expect("nothing fixed is set");
        assert_eq!(Value::from(request.clone()), serde_json::json!({ "text": "a", "mrkdwn": true, "blocks": [] }));
        assert!(payload.extend(&mut request, "sms", &["to"]).expect_err("fixed").contains("sets to"));
        payload.extend(&mut request, "telegram", &["chat_id"]).expect("there is nothing for it");
    }
}
