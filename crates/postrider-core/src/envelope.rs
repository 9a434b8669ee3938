//! The event envelope: what a consumer reads where the route's format is `envelope`.
//!
//! `{version, eventId, occurredAt, actor?, data}`, a JSON object with these names for good. A field may be added later,
//! and a reader ignores fields that it does not know; none is removed or changes its meaning.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

/// The version of an event whose producer gave none.
pub const FIRST_VERSION: u32 = 1;

/// An event in its envelope. `T` is the type of its data.
///
/// ```
/// # use postrider_core::EventEnvelope;
/// #[derive(serde::Deserialize)]
/// struct OrderPlaced { order: u64 }
///
/// let text = r#"{"version":1,"eventId":"0190b6f1-7c1e-7d2a-9b5e-6f6f0c1d2e3f",
///                "occurredAt":"2026-11-16T07:00:00Z","actor":{"type":"user","id":"42"},"data":{"order":7}}"#;
/// let event: EventEnvelope<OrderPlaced> = serde_json::from_str(text)?;
/// assert_eq!((event.version, event.data.order), (1, 7));
/// assert_eq!(event.actor.expect("it has one").id, "42");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventEnvelope<T> {
    /// The version of `data`, from 1.
    pub version: u32,
    /// The row's id: the same on every attempt and on every wire. Consumers tell duplicates by it.
    pub event_id: Uuid,
    /// When it happened: what the producer said, or when its transaction began.
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    /// Who caused it, if the producer said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What happened.
    pub data: T,
}

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// What kind of actor: `user`, `service`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Which one.
    pub id: String,
    /// What else is said of it.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

impl Actor {
    /// An actor with nothing more to say of it.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into(), details: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::UtcOffset;

    use super::*;

    fn text(occurred_at: &str) -> Value {
        json!({
            "version": 2, "eventId": "0190b6f1-7c1e-7d2a-9b5e-6f6f0c1d2e3f", "occurredAt": occurred_at,
            "actor": {"type": "user", "id": "42", "role": "clerk"}, "data": {"order": 7}
        })
    }

    fn read(value: &Value) -> Result<EventEnvelope<Value>, serde_json::Error> {
        serde_json::from_value(value.clone())
    }

    #[test]
    fn it_reads_what_it_writes_with_fractions_and_offsets() {
        for at in [
            "2026-11-16T07:00:00Z",
            "2026-11-16T07:00:00.123456Z",
            "2026-11-16T07:00:00.000000001-03:30",
            "2026-11-16T12:45:00+05:45",
            "9999-12-31T23:59:59.999999999Z",
        ] {
            let envelope = read(&text(at)).expect(at);
            assert_eq!(serde_json::to_value(&envelope).expect("JSON"), text(at));
        }
        let envelope = read(&text("2026-11-16T08:00:00.25+01:00")).expect("an envelope");
        assert_eq!(envelope.occurred_at.to_offset(UtcOffset::UTC).hour(), 7, "the moment is what counts");
        assert_eq!(envelope.occurred_at.nanosecond(), 250_000_000);
        assert_eq!(envelope.event_id.to_string(), "0190b6f1-7c1e-7d2a-9b5e-6f6f0c1d2e3f");
    }

    #[test]
    fn fields_that_a_later_version_adds_are_passed_over_and_details_of_an_actor_are_kept() {
        let mut later = text("2026-11-16T07:00:00Z");
        later["causedBy"] = json!({"eventId": "another"});
        later["event_id"] = json!("not the id");
        let envelope = read(&later).expect("it is read all the same");
        assert_eq!((envelope.version, &envelope.data), (2, &json!({"order": 7})));
        assert_eq!(envelope.actor.expect("one").details["role"], "clerk");
        let mut without = text("2026-11-16T07:00:00Z");
        without["actor"] = Value::Null;
        assert_eq!(read(&without).expect("an envelope").actor, None);
        let written = serde_json::to_value(read(&without).expect("an envelope")).expect("JSON");
        assert!(written.get("actor").is_none(), "{written}");
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        for (field, wrong) in [
            ("version", json!(-1)),
            ("version", json!("2")),
            ("eventId", json!("7")),
            ("occurredAt", json!("yesterday")),
            ("occurredAt", json!("2026-11-16T07:00:00")),
            ("occurredAt", json!(1_700_000_000)),
            ("actor", json!({"type": "user"})),
        ] {
            let mut bad = text("2026-11-16T07:00:00Z");
            bad[field] = wrong;
            assert!(read(&bad).is_err(), "{bad}");
        }
        for field in ["version", "eventId", "occurredAt", "data"] {
            let mut bad = text("2026-11-16T07:00:00Z");
            bad.as_object_mut().expect("an object").remove(field);
            assert!(read(&bad).is_err(), "{field}");
        }
    }
}
