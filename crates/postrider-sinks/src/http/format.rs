//! What a request says: body and headers by format.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::utf8_percent_encode;
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use postrider_core::{ClaimedMessage, Destination, Payload};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;

use super::config::Format;
use super::header::Headers;
use super::target::SEGMENT;
use crate::problem::ConfigProblem;
use crate::wire::Envelope;

const CONTENT_TYPE: &str = "content-type";
const STRUCTURED: &str = "application/cloudevents+json";
const UNKNOWN_BYTES: &str = "application/octet-stream";

/// The `source` attribute: a URI reference with fields in it.
#[derive(Debug, Clone)]
pub(super) struct Source(Destination);

impl Source {
    pub(super) fn new(text: &str) -> Result<Self, ConfigProblem> {
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

    fn of(&self, message: &ClaimedMessage) -> Result<String, String> {
        self.0.of(message, |value| Ok(utf8_percent_encode(value, SEGMENT).into())).map(|source| source.into_owned())
    }
}

/// A request's headers and body.
pub(super) struct Content {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Makes a request of a message, or says what is wrong with the message.
pub(super) fn content(
    format: Format,
    source: &Source,
    message: &ClaimedMessage,
    configured: &HeaderMap,
) -> Result<Content, String> {
    let envelope = Envelope::of(message);
    let mut headers = Headers::new(configured);
    let body = match format {
        Format::CloudeventsBinary => {
            binary(&mut headers, &envelope, &event(&envelope, source.of(message)?)?)?;
            message.payload.as_bytes().to_vec()
        }
        Format::CloudeventsStructured => {
            headers.ours_as_it_is(CONTENT_TYPE, STRUCTURED)?;
            structured(&envelope, event(&envelope, source.of(message)?)?)?
        }
        Format::Plain => {
            plain(&mut headers, &envelope)?;
            message.payload.as_bytes().to_vec()
        }
    };
    for (name, value) in [(TRACEPARENT, envelope.traceparent), (TRACESTATE, envelope.tracestate)] {
        if let Some(value) = value
            && !headers.ours_as_it_is(name, value)?
        {
            headers.carry(name, value)?;
        }
    }
    for (name, value) in envelope.headers() {
        headers.producers(name, value)?;
    }
    Ok(Content { headers: headers.finish(), body })
}

/// A CloudEvent but for its data. The names are the attributes'.
#[derive(Serialize)]
struct Event<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: &'a str,
    time: &'a str,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitionkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
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

fn event<'a>(envelope: &'a Envelope<'a>, source: String) -> Result<Event<'a>, String> {
    if envelope.topic.is_empty() || source.is_empty() {
        return Err("its topic is empty, and a CloudEvent needs a type and a source".into());
    }
    Ok(Event {
        specversion: "1.0",
        id: envelope.id.to_string(),
        source,
        r#type: envelope.topic,
        time: &envelope.created,
        datacontenttype: envelope.content_type,
        subject: envelope.key,
        partitionkey: envelope.key,
        namespace: Some(envelope.namespace).filter(|text| !text.is_empty()),
        tenantid: envelope.tenant.map(|tenant| tenant.to_string()),
        dedupekey: envelope.dedupe_key,
        attempt: envelope.attempt,
        replayed: envelope.replayed,
        traceparent: envelope.traceparent,
        tracestate: envelope.tracestate,
        data: None,
        data_base64: None,
    })
}

/// A content type that receivers would take for a CloudEvent in the body. In a body of ours it must not stand, or a
/// producer could speak in the name of another.
fn is_cloudevent(content_type: &str) -> bool {
    content_type.trim_start().to_ascii_lowercase().starts_with("application/cloudevents")
}

fn content_type(headers: &mut Headers<'_>, given: &str, allowed: bool) -> Result<(), String> {
    if given.is_empty() || !allowed || !headers.ours_as_it_is(CONTENT_TYPE, given)? {
        headers.ours_as_it_is(CONTENT_TYPE, UNKNOWN_BYTES)?;
        headers.carry(CONTENT_TYPE, given)?;
    }
    Ok(())
}

fn binary(headers: &mut Headers<'_>, envelope: &Envelope<'_>, event: &Event<'_>) -> Result<(), String> {
    content_type(headers, envelope.content_type, !is_cloudevent(envelope.content_type))?;
    let (attempt, replayed) = (event.attempt.to_string(), event.replayed.map(|count| count.to_string()));
    for (name, value) in [
        ("ce-specversion", Some(event.specversion)),
        ("ce-id", Some(&event.id)),
        ("ce-source", Some(&event.source)),
        ("ce-type", Some(event.r#type)),
        ("ce-time", Some(event.time)),
        ("ce-subject", event.subject),
        ("ce-partitionkey", event.partitionkey),
        ("ce-namespace", event.namespace),
        ("ce-tenantid", event.tenantid.as_deref()),
        ("ce-dedupekey", event.dedupekey),
        ("ce-attempt", Some(&attempt)),
        ("ce-replayed", replayed.as_deref()),
        ("ce-traceparent", event.traceparent),
        ("ce-tracestate", event.tracestate),
    ] {
        if let Some(value) = value {
            headers.ours(name, value)?;
        }
    }
    Ok(())
}

fn structured<'a>(envelope: &'a Envelope<'a>, mut event: Event<'a>) -> Result<Vec<u8>, String> {
    match envelope.payload() {
        Payload::Json(text) if is_json(envelope.content_type) => {
            let raw = serde_json::from_str(text).map_err(|_| "its payload is not JSON")?;
            event.data = Some(raw);
        }
        payload => event.data_base64 = Some(STANDARD.encode(payload.as_bytes())),
    }
    serde_json::to_vec(&event).map_err(|_| "it cannot be written as JSON".into())
}

/// Whether `data` may be a JSON value, by the rule of the JSON format.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.ends_with("/json") || media.ends_with("+json")
}

fn plain(headers: &mut Headers<'_>, envelope: &Envelope<'_>) -> Result<(), String> {
    content_type(headers, envelope.content_type, true)?;
    let (id, attempt) = (envelope.id.to_string(), envelope.attempt.to_string());
    let (tenant, replayed) =
        (envelope.tenant.map(|tenant| tenant.to_string()), envelope.replayed.map(|count| count.to_string()));
    for (name, value) in [
        ("postrider-event-id", Some(id.as_str())),
        ("postrider-namespace", Some(envelope.namespace)),
        ("postrider-topic", Some(envelope.topic)),
        ("postrider-key", envelope.key),
        ("postrider-tenant", tenant.as_deref()),
        ("postrider-dedupe-key", envelope.dedupe_key),
        ("postrider-attempt", Some(&attempt)),
        ("postrider-created", Some(&envelope.created)),
        ("postrider-replayed", replayed.as_deref()),
    ] {
        if let Some(value) = value {
            headers.ours(name, value)?;
        }
    }
    Ok(())
}
