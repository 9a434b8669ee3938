//! The events: their aggregates and payloads. Their names are those of the layout, which has them once for the database's enums
//! and for us; the outbox refuses every other.

use anyhow::Result;
use postrider::layout::Layout;
use postrider::message::{AGGREGATE_TYPE, EVENT_TYPE};
use postrider::{Actor, Event, EventEnvelope, Message, Outbox, Registry, RegistryError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

/// Whose events they are.
pub const NAMESPACE: &str = "packfinderz";

/// Something that happened, as this program tells of it.
pub trait Fact: Serialize + DeserializeOwned + 'static {
    /// The event's name.
    const NAME: &'static str;
    /// What it is about.
    const AGGREGATE: &'static str;
}

/// An order was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderCreated {
    /// The order.
    pub order: Uuid,
    /// Its price.
    pub total_cents: i64,
}

/// An order is at another step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStateChanged {
    /// The order.
    pub order: Uuid,
    /// Where it is now.
    pub state: String,
}

impl Fact for OrderCreated {
    const NAME: &'static str = "order_created";
    const AGGREGATE: &'static str = "vendor_order";
}

impl Fact for OrderStateChanged {
    const NAME: &'static str = "order_state_changed";
    const AGGREGATE: &'static str = "vendor_order";
}

/// What an event of another part of the shop is about. Those parts have their payload types themselves.
fn aggregate_of(event: &str) -> &'static str {
    match event {
        "license_status_changed" => "license",
        "media_uploaded" => "media",
        "payment_settled" | "cash_collected" | "vendor_payout_recorded" => "ledger_event",
        "notification_requested" => "notification",
        "reservation_released" => "checkout_group",
        advertisement if advertisement.starts_with("ad_") => "ad",
        _ => "vendor_order",
    }
}

/// All events: the words that the table's enum has, which are written down with the layout. The payload of each is an envelope.
pub fn registry() -> Result<Registry, RegistryError> {
    let ours = Registry::new(NAMESPACE).with(event_of::<OrderCreated>())?.with(event_of::<OrderStateChanged>())?;
    let words = Layout::packfinderz().topic.column().map(|column| column.values.clone()).unwrap_or_default();
    let mut others = words.into_iter().filter(|word| ![OrderCreated::NAME, OrderStateChanged::NAME].contains(&&**word));
    others.try_fold(ours, |events, name| {
        let aggregate = aggregate_of(&name);
        events.with(Event::of::<EventEnvelope<Value>>(name).aggregate(aggregate))
    })
}

fn event_of<T: Fact>() -> Event {
    Event::of::<EventEnvelope<T>>(T::NAME).aggregate(T::AGGREGATE)
}

/// An event in its envelope. The envelope has the id that the row gets.
pub fn message<T: Fact>(about: Uuid, actor: Option<Actor>, data: T) -> Message {
    let envelope =
        |event_id| EventEnvelope { version: 1, event_id, occurred_at: OffsetDateTime::now_utc(), actor, data };
    Message::json_with_id(NAMESPACE, T::NAME, envelope)
        .key(about.to_string())
        .header(EVENT_TYPE, T::NAME)
        .header(AGGREGATE_TYPE, T::AGGREGATE)
}

/// The outbox of the locked table, for registered events only.
pub fn outbox() -> Result<Outbox> {
    Ok(Outbox::with_layout(Layout::packfinderz())?.with_registry(registry()?))
}
