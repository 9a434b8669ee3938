//! The event registry: which events there are, where each goes, what it is about and what its payload is.
//!
//! An application registers its events once and makes messages through the registry, so that topics and types are
//! written down in one place. An outbox that is given the registry refuses every other message before SQL: an event that
//! is not registered, on another topic, about another aggregate, or whose payload is not of the registered type.

use std::any::{TypeId, type_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envelope::{Actor, FIRST_VERSION};
use crate::message::{ACTOR, AGGREGATE_TYPE, EVENT_TYPE, EVENT_VERSION, InvalidMessage, Message, NewRow};
use crate::name;

/// The events of an application. See the module.
///
/// ```
/// use postrider_core::{Event, Registry};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPlaced { order: u64 }
///
/// let events = Registry::new("shop")
///     .with(Event::of::<OrderPlaced>("order_placed").topic("domain-events").aggregate("order"))?;
/// let message = events.message("order_placed", "order-7", &OrderPlaced { order: 7 })?;
/// assert!(events.message("order_payed", "order-7", &OrderPlaced { order: 7 }).is_err());
/// # let _ = message;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    namespace: Cow<'static, str>,
    events: BTreeMap<Cow<'static, str>, Event>,
}

/// One entry of a [`Registry`].
#[derive(Clone)]
pub struct Event {
    name: Cow<'static, str>,
    topic: Option<Cow<'static, str>>,
    aggregate: Option<Cow<'static, str>>,
    version: u32,
    payload: PayloadType,
}

/// The type of an event's payload.
#[derive(Clone, Copy)]
struct PayloadType {
    id: TypeId,
    name: &'static str,
    reads: fn(&str) -> bool,
}

impl Event {
    /// An event whose payload is a `T`. Its topic is its own name unless another is given.
    pub fn of<T: Serialize + DeserializeOwned + 'static>(name: impl Into<Cow<'static, str>>) -> Self {
        let reads = |json: &str| serde_json::from_str::<T>(json).is_ok();
        let payload = PayloadType { id: TypeId::of::<T>(), name: type_name::<T>(), reads };
        Self { name: name.into(), topic: None, aggregate: None, version: FIRST_VERSION, payload }
    }

    /// The topic it goes to.
    pub fn topic(mut self, topic: impl Into<Cow<'static, str>>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// The type of the aggregate that it is about.
    pub fn aggregate(mut self, aggregate: impl Into<Cow<'static, str>>) -> Self {
        self.aggregate = Some(aggregate.into());
        self
    }

    /// The version of its payload; 1 unless it is given.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    fn goes_to(&self) -> &str {
        self.topic.as_deref().unwrap_or(&self.name)
    }
}

/// A type of event, a topic or a payload is not as it is registered. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum RegistryError {
    #[error("the event {event:?} is registered twice; remove one of them")]
    Twice { event: String },
    #[error("the event {event:?} has version 0; versions begin with 1")]
    Version { event: String },
    #[error(
        "the message has no header event-type, and this outbox takes registered events only; make it with Registry::message"
    )]
    NoEventType,
    #[error("the event {event:?} is not registered; the registry has {known}")]
    Unknown { event: String, known: String },
    #[error("the event {event:?} has the {what} {given:?}, it is registered with {expected:?}")]
    Differs { event: String, what: &'static str, given: String, expected: String },
    #[error("the payload of event {event:?} is not of its registered type {expected}")]
    Payload { event: String, expected: &'static str },
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
}

impl Registry {
    /// An empty registry; its events are messages of this namespace.
    pub fn new(namespace: impl Into<Cow<'static, str>>) -> Self {
        Self { namespace: namespace.into(), events: BTreeMap::new() }
    }

    /// Adds an event, if its names are good and new.
    pub fn with(mut self, event: Event) -> Result<Self, RegistryError> {
        name::check("event type", &event.name)?;
        name::check("topic", event.goes_to())?;
        if let Some(aggregate) = &event.aggregate {
            name::check("aggregate type", aggregate)?;
        }
        if event.version == 0 {
            return Err(RegistryError::Version { event: event.name.into_owned() });
        }
        match self.events.insert(event.name.clone(), event) {
            Some(earlier) => Err(RegistryError::Twice { event: earlier.name.into_owned() }),
            None => Ok(self),
        }
    }

    /// The names of all events, in order.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.events.keys().map(Cow::as_ref)
    }

    /// A message that tells of an event. The id of its aggregate is its key, so that events of one aggregate keep their
    /// order where order per key is asked for. The payload must be of the registered type.
    pub fn message<T: Serialize + 'static>(
        &self,
        event: &str,
        aggregate_id: impl Into<String>,
        payload: &T,
    ) -> Result<Message, RegistryError> {
        let entry = self.entry(event)?;
        if TypeId::of::<T>() != entry.payload.id {
            return Err(RegistryError::Payload { event: event.to_owned(), expected: entry.payload.name });
        }
        let topic = entry.topic.clone().unwrap_or_else(|| entry.name.clone());
        let mut message = Message::json(self.namespace.clone(), topic, payload)
            .key(aggregate_id)
            .header(EVENT_TYPE, entry.name.clone())
            .header(EVENT_VERSION, entry.version.to_string());
        if let Some(aggregate) = &entry.aggregate {
            message = message.header(AGGREGATE_TYPE, aggregate.clone());
        }
        Ok(message)
    }

    /// Checks a message that is about to be written.
    pub fn check(&self, row: &NewRow) -> Result<(), RegistryError> {
        let headers: BTreeMap<&str, Cow<'_, str>> = serde_json::from_str(&row.headers).unwrap_or_default();
        let header = |name: &str| headers.get(name).map(Cow::as_ref);
        let entry = self.entry(header(EVENT_TYPE).ok_or(RegistryError::NoEventType)?)?;
        let version = entry.version.to_string();
        for (what, given, expected) in [
            ("namespace", Some(row.namespace.as_ref()), Some(self.namespace.as_ref())),
            ("topic", Some(row.topic.as_ref()), Some(entry.goes_to())),
            ("aggregate type", header(AGGREGATE_TYPE), entry.aggregate.as_deref()),
            ("version", Some(header(EVENT_VERSION).unwrap_or("1")), Some(version.as_str())),
        ] {
            if given != expected {
                let (given, expected) = (given.unwrap_or_default().into(), expected.unwrap_or_default().into());
                return Err(RegistryError::Differs { event: entry.name.to_string(), what, given, expected });
            }
        }
        if row.payload_bytes.is_some() || !(entry.payload.reads)(&row.payload) {
            return Err(RegistryError::Payload { event: entry.name.to_string(), expected: entry.payload.name });
        }
        Ok(())
    }

    fn entry(&self, event: &str) -> Result<&Event, RegistryError> {
        let unknown = || {
            let known: Vec<String> = self.events().map(|name| format!("{name:?}")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            RegistryError::Unknown { event: event.chars().take(64).collect(), known }
        };
        self.events.get(event).ok_or_else(unknown)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("namespace", &self.namespace).field("events", &self.events.keys()).finish()
    }
}

impl Message {
    /// Says who caused the event; it is in the event envelope.
    pub fn actor(self, actor: &Actor) -> Self {
        // Text, text and JSON are always JSON.
        self.header(ACTOR, serde_json::to_string(actor).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Limits;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Placed {
        order: u64,
    }

    fn registry() -> Registry {
        let placed = Event::of::<Placed>("order_placed").topic("domain-events").aggregate("order").version(2);
        let registry = Registry::new("shop").with(placed).expect("good");
        registry.with(Event::of::<String>("note_written")).expect("good")
    }

    fn row(message: Message) -> NewRow {
        message.into_row(&Limits::default()).expect("a good message")
    }

    #[test]
    fn a_message_of_the_registry_is_as_registered() {
        let registry = registry();
        let message = registry.message("order_placed", "o-7", &Placed { order: 7 }).expect("registered");
        let row = row(message.actor(&Actor::new("user", "42")));
        assert_eq!(
            (row.namespace.as_ref(), row.topic.as_ref(), row.key.as_deref()),
            ("shop", "domain-events", Some("o-7"))
        );
        let headers: BTreeMap<String, String> = serde_json::from_str(&row.headers).expect("headers");
        assert_eq!(headers["event-type"], "order_placed");
        assert_eq!((headers["aggregate-type"].as_str(), headers["event-version"].as_str()), ("order", "2"));
        assert_eq!(headers["actor"], r#"{"type":"user","id":"42"}"#);
        assert_eq!(registry.check(&row), Ok(()));
        let note = registry.message("note_written", "n", &"hello".to_owned()).expect("registered");
        assert_eq!(note.into_row(&Limits::default()).expect("good").topic, "note_written");
    }

    #[test]
    fn what_is_not_registered_is_refused() {
        let registry = registry();
        let unknown = registry.message("order_payed", "o", &Placed { order: 7 }).expect_err("unknown");
        assert!(unknown.to_string().contains("\"order_placed\""), "{unknown}");
        let payload = registry.message("order_placed", "o", &7_u64).expect_err("another type");
        assert!(matches!(payload, RegistryError::Payload { .. }), "{payload}");
        let check = |message: Message| registry.check(&row(message)).expect_err("refused");
        let json = serde_json::json!({ "order": 7 });
        let message = |topic: &'static str| Message::json("shop", topic, &json);
        assert_eq!(check(message("domain-events")), RegistryError::NoEventType);
        let typed = |message: Message| {
            message.header(EVENT_TYPE, "order_placed").header(EVENT_VERSION, "2").header(AGGREGATE_TYPE, "order")
        };
        registry.check(&row(typed(message("domain-events")))).expect("good, although not made by the registry");
        for (message, what) in [
            (typed(message("other")), "topic"),
            (typed(Message::json("other", "domain-events", &json)), "namespace"),
            (typed(message("domain-events")).header(AGGREGATE_TYPE, "cart"), "aggregate type"),
            (typed(message("domain-events")).header(EVENT_VERSION, "1"), "version"),
        ] {
            let refused = check(message);
            assert!(matches!(&refused, RegistryError::Differs { what: found, .. } if *found == what), "{refused}");
        }
        let wrong = typed(Message::json("shop", "domain-events", &serde_json::json!({ "order": "seven" })));
        assert!(matches!(check(wrong), RegistryError::Payload { .. }));
        let bytes = typed(Message::bytes("shop", "domain-events", "text/plain", "x"));
        assert!(matches!(check(bytes), RegistryError::Payload { .. }));
    }

    #[test]
    fn names_are_checked_and_no_event_is_registered_twice() {
        let with = |event: Event| registry().with(event).expect_err("refused");
        assert!(matches!(with(Event::of::<u8>("order_placed")), RegistryError::Twice { .. }));
        assert!(matches!(with(Event::of::<u8>("")), RegistryError::Invalid(_)));
        assert!(matches!(with(Event::of::<u8>("x").topic("a b")), RegistryError::Invalid(_)));
        assert!(matches!(with(Event::of::<u8>("x").version(0)), RegistryError::Version { .. }));
    }
}
