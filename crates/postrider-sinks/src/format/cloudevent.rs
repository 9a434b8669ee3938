//! A message as a CloudEvent, version 1.0.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use postrider_core::{ClaimedMessage, Destination, Payload};
use serde::Serialize;
use serde_json::value::RawValue;
use url::Url;

use crate::problem::ConfigProblem;
use crate::wire::Attributes;

/// The content type of a CloudEvent in structured mode.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";

/// What does not stand for itself in a path segment.
pub(crate) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The `source` attribute: a URI reference with fields in it.
#[derive(Debug, Clone)]
pub struct Source(Destination);

impl Source {
    /// What the attribute is unless it is configured.
    pub const DEFAULT: &str = "/postrider/{namespace}";

    /// Reads it.
    pub fn new(text: &str) -> Result<Self, ConfigProblem> {
        let problem = |what: String| ConfigProblem::new("source", what);
        let template: Destination = text.parse().map_err(|error| problem(format!("{error}")))?;
        let mut sample = text.to_owned();
        for field in ["{namespace}", "{topic}", "{key}", "{tenant}"] {
            sample = sample.replace(field, "x");
        }
        let base = Url::parse("https://example.com/").map_err(|_| problem("it cannot be checked".into()))?;
        let in_uri = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
        match sample.bytes().all(in_uri) && base.join(&sample).is_ok() {
            true => Ok(Self(template)),
            false => Err(problem("it is no URI reference; write for example /postrider/{namespace}".into())),
        }
    }

    pub(crate) fn of(&self, message: &ClaimedMessage) -> Result<String, String> {
        self.0.of(message, |value| Ok(utf8_percent_encode(value, SEGMENT).into())).map(|source| source.into_owned())
    }
}

/// A CloudEvent but for its data. The names are the attributes'.
#[derive(Serialize)]
pub(crate) struct Event<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: &'a str,
    time: String,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitionkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregatetype: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenantid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupekey: Option<&'a str>,
    attempt: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

impl<'a> Event<'a> {
    pub(crate) fn of(attributes: &Attributes<'a>, source: String) -> Result<Self, String> {
        if attributes.event_type.is_empty() || source.is_empty() {
            return Err("its topic is empty, and a CloudEvent needs a type and a source".into());
        }
        Ok(Self {
            specversion: "1.0",
            id: attributes.id.to_string(),
            source,
            r#type: attributes.event_type,
            time: attributes.occurred.clone(),
            datacontenttype: attributes.content_type,
            subject: attributes.key,
            partitionkey: attributes.key,
            namespace: Some(attributes.namespace).filter(|text| !text.is_empty()),
            aggregatetype: attributes.aggregate_type,
            tenantid: attributes.tenant.map(|tenant| tenant.to_string()),
            dedupekey: attributes.dedupe_key,
            attempt: attributes.attempt,
            replayed: attributes.replayed,
            traceparent: attributes.traceparent,
            tracestate: attributes.tracestate,
            data: None,
            data_base64: None,
        })
    }

    /// Its attributes for binary mode. The content type is not among them: protocols have a place of their own for it.
    pub(crate) fn into_attributes(self) -> impl Iterator<Item = (&'static str, Cow<'a, str>)> {
        let owned = |text: String| Cow::Owned(text);
        let all = [
            ("specversion", Some(Cow::Borrowed(self.specversion))),
            ("id", Some(owned(self.id))),
            ("source", Some(owned(self.source))),
            ("type", Some(Cow::Borrowed(self.r#type))),
            ("time", Some(owned(self.time))),
            ("subject", self.subject.map(Cow::Borrowed)),
            ("partitionkey", self.partitionkey.map(Cow::Borrowed)),
            ("namespace", self.namespace.map(Cow::Borrowed)),
            ("aggregatetype", self.aggregatetype.map(Cow::Borrowed)),
            ("tenantid", self.tenantid.map(owned)),
            ("dedupekey", self.dedupekey.map(Cow::Borrowed)),
            ("attempt", Some(owned(self.attempt.to_string()))),
            ("replayed", self.replayed.map(|count| owned(count.to_string()))),
            ("traceparent", self.traceparent.map(Cow::Borrowed)),
            ("tracestate", self.tracestate.map(Cow::Borrowed)),
        ];
        all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    /// The body of structured mode.
    pub(crate) fn structured(mut self, attributes: &Attributes<'a>) -> Result<Vec<u8>, String> {
        match attributes.payload() {
            Payload::Json(text) if is_json(attributes.content_type) => {
                self.data = Some(serde_json::from_str(text).map_err(|_| "its payload is not JSON")?);
            }
            payload => self.data_base64 = Some(STANDARD.encode(payload.as_bytes())),
        }
        serde_json::to_vec(&self).map_err(|_| "it cannot be written as JSON".into())
    }
}

/// A content type that receivers would take for a CloudEvent in the body.
pub(crate) fn is_cloudevent(content_type: &str) -> bool {
    content_type.trim_start().to_ascii_lowercase().starts_with("application/cloudevents")
}

/// Whether `data` may be a JSON value, by the rule of the JSON format.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.ends_with("/json") || media.ends_with("+json")
}
