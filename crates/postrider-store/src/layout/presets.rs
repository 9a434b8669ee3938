//! The tables that Postrider knows.

use postrider_core::message::{AGGREGATE_TYPE, EVENT_TYPE};

use super::{ClaimBy, Column, Counts, Lanes, Layout, LayoutError, Text, Words};
use crate::names::Names;

/// Our own table's layout.
pub(super) const POSTRIDER: &str = "postrider";

/// The names of all presets.
pub const PRESETS: [&str; 7] = [POSTRIDER, "modkit", "talkie", "packfinderz", "valinor", "debezium", "debezium_keep"];

/// A preset by its name, with the names of the seed's table.
pub fn preset(name: &str) -> Result<Layout, LayoutError> {
    Ok(match name {
        POSTRIDER => Layout::default(),
        "modkit" => Layout::modkit(),
        "talkie" => Layout::talkie(),
        "packfinderz" => Layout::packfinderz(),
        "valinor" => Layout::valinor(),
        "debezium" => Layout::debezium(),
        "debezium_keep" => Layout::debezium_keep(),
        _ => return Err(LayoutError::Unknown { name: name.chars().take(80).collect() }),
    })
}

/// What a preset is for, in a line; nothing if there is none of this name.
pub fn about(name: &str) -> Option<&'static str> {
    Some(match name {
        POSTRIDER => "Postrider's own table, with all it can do",
        "modkit" => "a shared table of events by namespace, topic and tenant, with leases",
        "talkie" => "messages to Kafka, with a word for failed ones; a lock counts from the last attempt",
        "packfinderz" => "domain events with published_at and attempt_count; rows are locked while they are published",
        "valinor" => "replies to channels, kept apart by tenant; a lock counts from locked_at",
        "debezium" => "the outbox event router's table as it is; delivered rows are deleted",
        "debezium_keep" => "the outbox event router's table with further columns, so that delivered rows can stay",
        _ => return None,
    })
}

fn column(name: &str) -> Option<Column> {
    Some(name.into())
}

fn text(name: &str) -> Text {
    Text::Column(name.into())
}

fn fixed(text: &str) -> Text {
    Text::Fixed { fixed: text.to_owned() }
}

fn words(pending: &str, processing: &str, delivered: &str, dead: &str) -> Option<Words> {
    let [pending, processing, delivered, dead] = [pending, processing, delivered, dead].map(str::to_owned);
    Some(Words { pending, failed: None, processing, delivered, dead })
}

/// Names in the default schema, with a prefix of the layout's own, so that several outboxes can be in one schema. The names are
/// constants here and fine.
fn named(layout: &str, table: &str) -> Names {
    Names::existing(None, &format!("postrider_{layout}_"), table).unwrap_or_default()
}

/// The most characters of the outbox event router's columns.
const ROUTER_LENGTH: u32 = 255;

/// The aggregates of the locked table's enum.
#[rustfmt::skip]
pub(crate) const AGGREGATE_TYPES: [&str; 8] = [
    "vendor_order", "checkout_group", "license", "store", "media", "ledger_event", "notification", "ad",
];

/// The events of the locked table's enum.
#[rustfmt::skip]
pub(crate) const EVENT_TYPES: [&str; 18] = [
    "order_created", "order_state_changed", "line_item_state_changed", "license_status_changed", "media_uploaded",
    "payment_settled", "cash_collected", "vendor_payout_recorded", "notification_requested",
    "order_expired", "order_canceled", "reservation_released",
    "ad_created", "ad_updated", "ad_paused", "ad_activated", "ad_expired", "ad_daily_rollup_ready",
];

impl Layout {
    /// Postrider's own table.
    pub fn postrider(names: Names) -> Self {
        Self {
            namespace: text("namespace"),
            topic: text("topic"),
            key: column("key"),
            tenant: column("tenant_id"),
            dedupe_key: column("dedupe_key"),
            payload_bytes: column("payload_bytes"),
            headers: column("headers"),
            status: column("status"),
            words: words("pending", "processing", "delivered", "dead"),
            claim: ClaimBy::Lease,
            locked_by: column("locked_by"),
            locked_until: column("locked_until"),
            attempts: column("attempts"),
            max_attempts: column("max_attempts"),
            next_attempt_at: column("next_attempt_at"),
            seq: column("seq"),
            last_error: column("last_error"),
            created_at: column("created_at"),
            updated_at: column("updated_at"),
            delivered_at: column("delivered_at"),
            lanes: Some(Lanes::Topics),
            indexed_like_ours: true,
            ..Self::bare(POSTRIDER, names, "id", "payload")
        }
    }

    /// A shared table of usage events, with leases.
    pub fn modkit() -> Self {
        Self {
            namespace: text("namespace"),
            topic: text("topic"),
            tenant: column("tenant_id"),
            dedupe_key: column("dedupe_key"),
            status: column("status"),
            words: words("pending", "processing", "delivered", "dead"),
            claim: ClaimBy::Lease,
            locked_by: column("locked_by"),
            locked_until: column("locked_until"),
            attempts: column("attempts"),
            next_attempt_at: column("next_attempt_at"),
            last_error: column("last_error"),
            created_at: column("created_at"),
            updated_at: column("updated_at"),
            ..Self::bare("modkit", named("modkit", "modkit_outbox_events"), "id", "payload")
        }
    }

    /// A table of messages to Kafka, with a word for failed ones. A claim is over when its time of the last attempt is too old.
    pub fn talkie() -> Self {
        let words = words("pending", "publishing", "published", "dead_lettered");
        Self {
            topic: text("topic"),
            key: column("key"),
            dedupe_key: column("idempotency_key"),
            dedupe_required: true,
            status: column("status"),
            words: words.map(|words| Words { failed: Some("failed".to_owned()), ..words }),
            dead_after_failed: true,
            claim: ClaimBy::LockTimeout,
            locked_at: column("last_attempt_at"),
            last_attempt_at: column("last_attempt_at"),
            attempts: column("retry_count"),
            counts: Counts::Failures,
            next_attempt_at: column("next_attempt_at"),
            last_error: column("last_error"),
            created_at: column("created_at"),
            delivered_at: column("published_at"),
            ..Self::bare("talkie", named("talkie", "outbox"), "id", "payload_json")
        }
    }

    /// A locked table of domain events with three columns that may change. Rows are locked while they are published.
    pub fn packfinderz() -> Self {
        let event = Column::one_of("event_type", "event_type_enum", &EVENT_TYPES);
        let aggregate = Column::one_of("aggregate_type", "aggregate_type_enum", &AGGREGATE_TYPES);
        // The type of an event is its topic, and the header in which a registry looks for it.
        let fields = [(EVENT_TYPE, event.clone()), (AGGREGATE_TYPE, aggregate)];
        Self {
            namespace: fixed("packfinderz"),
            topic: Text::Column(event),
            key: Some(Column::typed("aggregate_id", "uuid")),
            key_required: true,
            fields: fields.map(|(header, column)| (header.to_owned(), column)).into(),
            attempts: column("attempt_count"),
            counts: Counts::Failures,
            give_up_after: Some(10),
            last_error: column("last_error"),
            last_error_limit: Some(500),
            created_at: column("created_at"),
            delivered_at: column("published_at"),
            ..Self::bare("packfinderz", named("packfinderz", "outbox_events"), "id", "payload_json")
        }
    }

    /// Replies to channels, kept apart by tenant. A claim is over when its lock is too old.
    pub fn valinor() -> Self {
        // Provider and recipient are topic and key, and the headers that the sink for providers looks for.
        let fields = [("provider", "provider".into()), ("recipient", "recipient_id".into())];
        let message = ("channel-message-id", Column::typed("channel_message_id", "uuid"));
        Self {
            namespace: fixed("channels"),
            topic: text("provider"),
            key: column("recipient_id"),
            key_required: true,
            tenant: column("tenant_id"),
            tenant_required: true,
            fields: fields.into_iter().chain([message]).map(|(header, column)| (header.to_owned(), column)).collect(),
            status: column("status"),
            words: words("pending", "sending", "sent", "dead"),
            claim: ClaimBy::LockTimeout,
            locked_at: column("locked_at"),
            attempts: column("attempt_count"),
            counts: Counts::Failures,
            max_attempts: column("max_attempts"),
            usual_max_attempts: Some(5),
            next_attempt_at: column("next_attempt_at"),
            last_error: column("last_error"),
            created_at: column("created_at"),
            updated_at: column("updated_at"),
            delivered_at: column("sent_at"),
            lanes: Some(Lanes::Tenants),
            ..Self::bare("valinor", named("valinor", "channel_outbox"), "id", "payload")
        }
    }

    /// The table of the outbox event router, without any column of ours: rows are locked while they are published, and deleted
    /// afterwards.
    pub fn debezium() -> Self {
        let fields = [("id", "id".into()), (EVENT_TYPE, Column::up_to("type", ROUTER_LENGTH))];
        Self {
            topic: Text::Column(Column::up_to("aggregatetype", ROUTER_LENGTH)),
            key: Some(Column::up_to("aggregateid", ROUTER_LENGTH)),
            key_required: true,
            fields: fields.map(|(header, column)| (header.to_owned(), column)).into(),
            ..Self::bare("debezium", named("debezium", "outboxevent"), "id", "payload")
        }
    }

    /// The table of the outbox event router with further columns, which producers need not know: delivered rows stay.
    pub fn debezium_keep() -> Self {
        let (ours, router) = (Self::postrider(named("debezium", "outboxevent")), Self::debezium());
        Self {
            name: "debezium_keep".into(),
            namespace: fixed("outboxevent"),
            tenant: None,
            dedupe_key: None,
            payload_bytes: None,
            headers: None,
            max_attempts: None,
            seq: None,
            lanes: None,
            indexed_like_ours: false,
            topic: router.topic,
            key: router.key,
            key_required: router.key_required,
            fields: router.fields,
            ..ours
        }
    }
}
