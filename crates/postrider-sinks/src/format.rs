//! How a message is written: the bodies and headers that all sinks have in common.
//!
//! A sink of a broker makes a [`Form`] for each route and asks it for the [`Content`] of each message. What it answers is
//! the same on every attempt but for the number of the attempt. A producer's header that has a name of ours goes under
//! [`CARRIED`], so that it is neither obeyed nor lost. That is so whether or not the message has such a thing of its own:
//! a consumer that reads `tenant_id` may rely on it.

pub(crate) mod cloudevent;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use postrider_core::message::CONTENT_TYPE;
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use postrider_core::{ClaimedMessage, EventEnvelope, Payload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use cloudevent::Source;
pub(crate) use cloudevent::{Event, STRUCTURED, is_cloudevent};

use crate::problem::ConfigProblem;
use crate::wire::Attributes;

/// What goes before a producer's header that cannot go under its own name.
pub const CARRIED: &str = "postrider-header-";

/// The content type of the event envelope.
pub(crate) const JSON: &str = "application/json";
/// The content type of what must not be taken for something else.
pub(crate) const UNKNOWN_BYTES: &str = "application/octet-stream";

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// The body is the payload; what belongs to it is in headers.
    Plain,
    /// The body is the event envelope `{version, eventId, occurredAt, actor?, data}` with the payload as its data, which
    /// must be JSON; the headers are those of `plain`.
    Envelope,
    /// CloudEvents 1.0 in binary mode: the body is the payload, the attributes are headers.
    CloudeventsBinary,
    /// CloudEvents 1.0 in structured mode: the body is one JSON document with attributes and payload, so that a signature
    /// covers both.
    CloudeventsStructured,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Envelope, Self::CloudeventsBinary, Self::CloudeventsStructured];
}

/// How the messages of a route are written for a broker.
#[derive(Debug, Clone)]
pub struct Form {
    format: Format,
    source: Source,
    /// What goes before the name of a CloudEvents attribute in a header, by the binding of the protocol.
    prefix: &'static str,
}

/// A message as it is given to a broker.
#[derive(Clone)]
pub struct Content<'a> {
    /// What is in it.
    pub body: Cow<'a, [u8]>,
    /// The content type of the body; it is among the headers too.
    pub content_type: Cow<'a, str>,
    /// Ours first, then the producer's own. No name comes twice. The values may hold any text.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Form {
    /// The form of a route. `source` is the CloudEvents attribute; `prefix` goes before CloudEvents attributes in headers.
    pub fn new(format: Format, source: &str, prefix: &'static str) -> Result<Self, ConfigProblem> {
        Ok(Self { format, source: Source::new(source)?, prefix })
    }

    /// The same but for the format.
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Writes a message, or says what is wrong with it: it can never be sent in this form.
    pub fn content<'a>(&self, message: &'a ClaimedMessage) -> Result<Content<'a>, String> {
        let attributes = Attributes::of(message);
        let mut headers = Headers::default();
        let payload = || Cow::Borrowed(message.payload.as_bytes());
        let (body, content_type) = match self.format {
            Format::Plain => (payload(), Cow::Borrowed(attributes.content_type)),
            Format::Envelope => (Cow::Owned(envelope(&attributes)?), Cow::Borrowed(JSON)),
            Format::CloudeventsBinary => {
                let event = Event::of(&attributes, self.source.of(message)?)?;
                for (name, value) in event.into_attributes() {
                    headers.put(Cow::Owned(format!("{}{name}", self.prefix)), value);
                }
                // Receivers would take such a payload for a CloudEvent by itself, and a producer speak for another.
                match is_cloudevent(attributes.content_type) {
                    false => (payload(), Cow::Borrowed(attributes.content_type)),
                    true => {
                        let name = Cow::Owned(format!("{CARRIED}{CONTENT_TYPE}"));
                        headers.put(name, Cow::Borrowed(attributes.content_type));
                        (payload(), Cow::Borrowed(UNKNOWN_BYTES))
                    }
                }
            }
            Format::CloudeventsStructured => {
                let event = Event::of(&attributes, self.source.of(message)?)?;
                (Cow::Owned(event.structured(&attributes)?), Cow::Borrowed(STRUCTURED))
            }
        };
        ours(&mut headers, &attributes, content_type.clone());
        for (name, value) in attributes.headers() {
            let name = match self.is_ours(name) {
                true => Cow::Owned(format!("{CARRIED}{name}")),
                false => Cow::Borrowed(name),
            };
            headers.put(name, Cow::Borrowed(value));
        }
        Ok(Content { body, content_type, headers: headers.0 })
    }

    /// Whether a producer's header could be taken for one of ours. Consumers look names up without regard to case.
    fn is_ours(&self, name: &str) -> bool {
        OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
            || begins_with(name, CARRIED)
            || !self.prefix.is_empty() && begins_with(name, self.prefix)
    }
}

/// Whether a name begins with a prefix, whatever the case of its letters.
pub(crate) fn begins_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The names of [`ours`].
const OURS: [&str; 16] = [
    "event_id",
    "event_type",
    "event_version",
    "aggregate_type",
    "aggregate_id",
    "namespace",
    "topic",
    "key",
    "tenant_id",
    "dedupe_key",
    "attempt",
    "created_at",
    "replayed",
    CONTENT_TYPE,
    TRACEPARENT,
    TRACESTATE,
];

#[derive(Default)]
struct Headers<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Headers<'a> {
    fn put(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        self.0.push((name, value));
    }

    fn borrowed(&mut self, name: &'static str, value: Option<&'a str>) {
        if let Some(value) = value {
            self.put(Cow::Borrowed(name), Cow::Borrowed(value));
        }
    }

    fn owned(&mut self, name: &'static str, value: Option<String>) {
        if let Some(value) = value {
            self.put(Cow::Borrowed(name), Cow::Owned(value));
        }
    }
}

/// The headers that every message has, whatever its format.
fn ours<'a>(headers: &mut Headers<'a>, attributes: &Attributes<'a>, content_type: Cow<'a, str>) {
    headers.owned("event_id", Some(attributes.id.to_string()));
    headers.borrowed("event_type", Some(attributes.event_type));
    headers.owned("event_version", Some(attributes.event_version.to_string()));
    headers.borrowed("aggregate_type", attributes.aggregate_type);
    headers.borrowed("aggregate_id", attributes.aggregate_id());
    headers.borrowed("namespace", Some(attributes.namespace));
    headers.borrowed("topic", Some(attributes.topic));
    headers.borrowed("key", attributes.key);
    headers.owned("tenant_id", attributes.tenant.map(|tenant| tenant.to_string()));
    headers.borrowed("dedupe_key", attributes.dedupe_key);
    headers.owned("attempt", Some(attributes.attempt.to_string()));
    headers.owned("created_at", Some(attributes.created.clone()));
    headers.owned("replayed", attributes.replayed.map(|count| count.to_string()));
    headers.put(Cow::Borrowed(CONTENT_TYPE), content_type);
    headers.borrowed(TRACEPARENT, attributes.traceparent);
    headers.borrowed(TRACESTATE, attributes.tracestate);
}

/// The event envelope with the payload as its data.
pub(crate) fn envelope(attributes: &Attributes<'_>) -> Result<Vec<u8>, String> {
    let Payload::Json(text) = attributes.payload() else {
        return Err(
            "its payload is bytes, and the format envelope needs JSON; choose another format for its route".into()
        );
    };
    let data: &RawValue = serde_json::from_str(text).map_err(|_| "its payload is not JSON")?;
    let envelope = EventEnvelope {
        version: attributes.event_version,
        event_id: attributes.id,
        occurred_at: attributes.occurred_at(),
        actor: attributes.actor()?,
        data,
    };
    serde_json::to_vec(&envelope).map_err(|_| "it cannot be written as JSON".into())
}
