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
