//! What a request says: body and headers by format.

use postrider_core::ClaimedMessage;
use postrider_core::message::CONTENT_TYPE;
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use reqwest::header::HeaderMap;

use super::header::Headers;
use crate::format::{Event, Format, JSON, STRUCTURED, Source, UNKNOWN_BYTES, envelope, is_cloudevent};
use crate::wire::Attributes;

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
    let attributes = Attributes::of(message);
    let mut headers = Headers::new(configured);
    let body = match format {
        Format::CloudeventsBinary => {
            binary(&mut headers, &attributes, Event::of(&attributes, source.of(message)?)?)?;
            message.payload.as_bytes().to_vec()
        }
        Format::CloudeventsStructured => {
            headers.ours_as_it_is(CONTENT_TYPE, STRUCTURED)?;
            Event::of(&attributes, source.of(message)?)?.structured(&attributes)?
        }
        Format::Plain => {
            content_type(&mut headers, attributes.content_type, true)?;
            plain(&mut headers, &attributes)?;
            message.payload.as_bytes().to_vec()
        }
        Format::Envelope => {
            headers.ours_as_it_is(CONTENT_TYPE, JSON)?;
            plain(&mut headers, &attributes)?;
            envelope(&attributes)?
        }
    };
    for (name, value) in [(TRACEPARENT, attributes.traceparent), (TRACESTATE, attributes.tracestate)] {
        if let Some(value) = value
            && !headers.ours_as_it_is(name, value)?
        {
            headers.carry(name, value)?;
        }
    }
    for (name, value) in attributes.headers() {
        headers.producers(name, value)?;
    }
    Ok(Content { headers: headers.finish(), body })
}

/// A payload that calls itself a CloudEvent must not stand in a body of ours, or a producer could speak in the name of
/// another.
fn content_type(headers: &mut Headers<'_>, given: &str, allowed: bool) -> Result<(), String> {
    if given.is_empty() || !allowed || !headers.ours_as_it_is(CONTENT_TYPE, given)? {
        headers.ours_as_it_is(CONTENT_TYPE, UNKNOWN_BYTES)?;
        headers.carry(CONTENT_TYPE, given)?;
    }
    Ok(())
}

fn binary(headers: &mut Headers<'_>, attributes: &Attributes<'_>, event: Event<'_>) -> Result<(), String> {
    content_type(headers, attributes.content_type, !is_cloudevent(attributes.content_type))?;
    event.into_attributes().try_for_each(|(name, value)| headers.ours(&format!("ce-{name}"), &value))
}

fn plain(headers: &mut Headers<'_>, attributes: &Attributes<'_>) -> Result<(), String> {
    let (id, attempt) = (attributes.id.to_string(), attributes.attempt.to_string());
    let version = attributes.event_version.to_string();
    let (tenant, replayed) =
        (attributes.tenant.map(|tenant| tenant.to_string()), attributes.replayed.map(|count| count.to_string()));
    for (name, value) in [
        ("postrider-event-id", Some(id.as_str())),
        ("postrider-event-type", Some(attributes.event_type)),
        ("postrider-event-version", Some(&version)),
        ("postrider-aggregate-type", attributes.aggregate_type),
        ("postrider-aggregate-id", attributes.aggregate_id()),
        ("postrider-namespace", Some(attributes.namespace)),
        ("postrider-topic", Some(attributes.topic)),
        ("postrider-key", attributes.key),
        ("postrider-tenant", tenant.as_deref()),
        ("postrider-dedupe-key", attributes.dedupe_key),
        ("postrider-attempt", Some(&attempt)),
        ("postrider-created", Some(&attributes.created)),
        ("postrider-replayed", replayed.as_deref()),
    ] {
        if let Some(value) = value {
            headers.ours(name, value)?;
        }
    }
    Ok(())
}
