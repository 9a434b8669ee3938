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
    use proptest::prelude::*;
    use serde_json::json;
    use time::UtcOffset;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    prop_compose! {
        /// Times that RFC 3339 can say: years of four digits, offsets in minutes.
        fn any_envelope()(
            version in any::<u32>(), id in any::<u128>(), seconds in 0_i64..253_402_200_000, nanos in 0_i64..1_000_000_000,
            minutes in -1_439_i32..1_440, data in any_json(),
            actor in prop::option::of((any::<String>(), any::<String>(), any_json())),
        ) -> EventEnvelope<Value> {
            let moment = OffsetDateTime::from_unix_timestamp(seconds).expect("in range") + time::Duration::nanoseconds(nanos);
            let offset = UtcOffset::from_whole_seconds(minutes * 60).expect("in range");
            let actor = actor.map(|(kind, id, role)| Actor { kind, id, details: Map::from_iter([("role".to_owned(), role)]) });
            EventEnvelope { version, event_id: Uuid::from_u128(id), occurred_at: moment.to_offset(offset), actor, data }
        }
    }

    proptest! {
        #[test]
        fn s25_every_envelope_is_read_as_it_was_written(envelope in any_envelope()) {
            let text = serde_json::to_string(&envelope).expect("JSON");
            let read: EventEnvelope<Value> = serde_json::from_str(&text).expect("an envelope");
            prop_assert_eq!(read.occurred_at.offset(), envelope.occurred_at.offset());
            prop_assert_eq!(read, envelope);
        }

        #[test]
        fn s25_a_damaged_envelope_is_read_or_refused_and_never_more(
            envelope in any_envelope(), at in any::<prop::sample::Index>(), put in any::<Vec<u8>>(),
        ) {
            let mut bytes = serde_json::to_vec(&envelope).expect("JSON");
            let at = at.index(bytes.len());
            bytes.splice(at..(at + put.len()).min(bytes.len()), put);
            if let Ok(read) = serde_json::from_slice::<EventEnvelope<Value>>(&bytes) {
                prop_assert!(serde_json::to_vec(&read).is_ok(), "what is read can be written");
            }
        }
    }

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
