//! What every message carries, whatever the wire.
//!
//! The values come from a table that any language may insert into, so each of them may hold any text: line breaks,
//! control characters, other scripts, nothing at all. [`Attributes`] only collect them; a sink encodes each for its
//! own wire or refuses the message, and trusts none of them.

use postrider_core::envelope::{Actor, FIRST_VERSION};
use postrider_core::message::{ACTOR, AGGREGATE_TYPE, CONTENT_TYPE, EVENT_TYPE, EVENT_VERSION, OCCURRED_AT};
use postrider_core::operate::REPLAYED;
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use postrider_core::{ClaimedMessage, Payload};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use uuid::Uuid;

/// The last microsecond of the year 9999: RFC 3339 has no later years.
const LATEST_MICROS: i64 = 253_402_300_799_999_999;

/// What a message carries besides its payload.
#[derive(Clone)]
pub struct Attributes<'a> {
    /// The event id, the same on every attempt.
    pub id: Uuid,
    /// The producer's namespace.
    pub namespace: &'a str,
    /// The topic within it.
    pub topic: &'a str,
    /// The type of the event: the producer's header `event-type`, or else the topic.
    pub event_type: &'a str,
    /// The version of its payload, from 1.
    pub event_version: u32,
    /// The type of the aggregate that it is about; the key is the aggregate's id then.
    pub aggregate_type: Option<&'a str>,
    /// The ordering and partition key; never empty.
    pub key: Option<&'a str>,
    /// The tenant.
    pub tenant: Option<Uuid>,
    /// The producer's idempotency key; never empty.
    pub dedupe_key: Option<&'a str>,
    /// Which attempt this is, from 1.
    pub attempt: i32,
    /// When the producer's transaction began: RFC 3339 in UTC, with microseconds.
    pub created: String,
    /// When it happened: what the producer said if that is RFC 3339, or else when its transaction began.
    pub occurred: String,
    /// How often an operator replayed the message, if ever.
    pub replayed: Option<u32>,
    /// The producer's span, in W3C form as far as the producer kept to it.
    pub traceparent: Option<&'a str>,
    /// Vendors' additions to it.
    pub tracestate: Option<&'a str>,
    /// The content type of the payload.
    pub content_type: &'a str,
    /// Whether the version is what the producer said.
    is_versioned: bool,
    message: &'a ClaimedMessage,
}

impl<'a> Attributes<'a> {
    /// Collects what a message carries.
    pub fn of(message: &'a ClaimedMessage) -> Self {
        let header = |name: &str| message.headers.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let created = rfc3339(message.created_at_micros);
        let said = header(OCCURRED_AT).and_then(strict);
        let version =
            header(EVENT_VERSION).and_then(|text| text.parse().ok()).filter(|number| *number >= FIRST_VERSION);
        Self {
            id: message.id,
            namespace: &message.namespace,
            topic: &message.topic,
            event_type: header(EVENT_TYPE).unwrap_or(&message.topic),
            event_version: version.unwrap_or(FIRST_VERSION),
            aggregate_type: header(AGGREGATE_TYPE),
            key: message.key.as_deref().filter(|key| !key.is_empty()),
            tenant: message.tenant_id,
            dedupe_key: message.dedupe_key.as_deref().filter(|key| !key.is_empty()),
            attempt: message.attempts,
            occurred: said.unwrap_or_else(|| created.clone()),
            created,
            replayed: header(REPLAYED).and_then(|count| count.parse().ok()),
            traceparent: header(TRACEPARENT),
            tracestate: header(TRACESTATE),
            content_type: message.content_type(),
            is_versioned: version.is_some(),
            message,
        }
    }

    /// The producer's own headers: all but those that are attributes on every wire. `occurred-at` and `actor` have a place
    /// in some formats only, so they go along in all of them; what is no version and no count is not lost either.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (replayed, versioned) = (self.replayed.is_some(), self.is_versioned);
        let ours = move |name: &str| match name {
            CONTENT_TYPE | EVENT_TYPE | AGGREGATE_TYPE | TRACEPARENT | TRACESTATE => true,
            EVENT_VERSION => versioned,
            REPLAYED => replayed,
            _ => false,
        };
        let headers = self.message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        headers.filter(move |(name, _)| !ours(name))
    }

    /// The id of the aggregate that the event is about.
    pub fn aggregate_id(&self) -> Option<&'a str> {
        self.aggregate_type.and(self.key)
    }

    /// When it happened, as a time.
    pub fn occurred_at(&self) -> OffsetDateTime {
        OffsetDateTime::parse(&self.occurred, &Rfc3339).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Who caused it, if the producer said so; the error says that it cannot be read.
    pub fn actor(&self) -> Result<Option<Actor>, String> {
        let Some(text) = self.message.headers.get(ACTOR).filter(|text| !text.is_empty()) else { return Ok(None) };
        let actor = serde_json::from_str(text);
        actor.map(Some).map_err(|_| "its header actor is not a JSON object with type and id".into())
    }

    /// The payload.
    pub fn payload(&self) -> &'a Payload {
        &self.message.payload
    }
}

/// A time as every reader takes it. The parser lets a space or small letters stand for `T` and `Z`, which are written here.
fn strict(text: &str) -> Option<String> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let usual = |b: u8| b.is_ascii_digit() || b"-:.+TZ".contains(&b);
    if text.bytes().all(usual) { Some(text.to_owned()) } else { time.format(&Rfc3339).ok() }
}

/// Microseconds since 1970 as RFC 3339 in UTC. Times that it cannot express become the nearest it can.
pub fn rfc3339(micros: i64) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    let nanos = i128::from(micros.clamp(0, LATEST_MICROS)) * 1_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // Every part of the format exists in every time, so this cannot fail.
    time.format(&format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, RowAddress};

    #[test]
    fn times_are_rfc_3339_whatever_the_row_says() {
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
            (LATEST_MICROS, "9999-12-31T23:59:59.999999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999999Z"),
            (i64::MIN, "1970-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(micros), expected);
        }
    }

    #[test]
    fn what_is_an_attribute_is_no_header_of_the_producer() {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 3, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "n".into(), "t".into(), Payload::Json("{}".into()));
        message.key = Some(String::new());
        for (name, value) in
            [("content-type", "text/x"), ("traceparent", "00-1"), ("postrider-replayed", "2"), ("colour", "red")]
        {
            message.headers.insert(name.into(), value.into());
        }
        let attributes = Attributes::of(&message);
        assert_eq!((attributes.attempt, attributes.replayed, attributes.key), (3, Some(2), None));
        assert_eq!((attributes.traceparent, attributes.content_type), (Some("00-1"), "text/x"));
        assert_eq!(attributes.headers().collect::<Vec<_>>(), [("colour", "red")]);
        // A producer that wrote the row itself may claim anything; what is no count is only a header.
        message.headers.insert("postrider-replayed".into(), "often".into());
        let attributes = Attributes::of(&message);
        assert_eq!(attributes.replayed, None);
        assert_eq!(attributes.headers().count(), 2);
    }
}
