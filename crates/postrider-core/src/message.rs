//! What a producer writes, and every check made before SQL.
//!
//! A [`Message`] is built without errors; [`Message::into_row`] checks all of it and gives a [`NewRow`], the
//! only thing a store can insert. So bad input never reaches the database, and the caller's transaction
//! stays usable.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use uuid::Uuid;

use crate::sabotage::{self, Defect};
use crate::{json, name, trace};

/// The longest ordering key or dedupe key, in bytes.
pub const MAX_KEY_LENGTH: usize = 512;
/// The most headers a message may carry, the trace context not counted.
pub const MAX_HEADERS: usize = 64;
/// The longest header value, in bytes.
pub const MAX_HEADER_VALUE: usize = 4_096;
/// The longest header name, in bytes.
pub const MAX_HEADER_NAME: usize = 128;
/// The default limit of a payload, in bytes.
pub const DEFAULT_MAX_PAYLOAD: usize = 1024 * 1024;
/// The highest limit of a payload that can be configured, in bytes.
pub const LARGEST_MAX_PAYLOAD: usize = 64 * 1024 * 1024;
/// Header names that begin so are Postrider's own.
pub const RESERVED_HEADER_PREFIX: &str = "postrider-";
/// The header that carries the content type of a bytes payload.
pub const CONTENT_TYPE: &str = "content-type";
/// The header that names the type of an event; without it the topic does.
pub const EVENT_TYPE: &str = "event-type";
/// The header with the version of an event's payload, a whole number from 1.
pub const EVENT_VERSION: &str = "event-version";
/// The header with the type of the aggregate that an event is about; its id is the message's key.
pub const AGGREGATE_TYPE: &str = "aggregate-type";
/// The header that says when an event happened, in RFC 3339; without it, when the producer's transaction began.
pub const OCCURRED_AT: &str = "occurred-at";
/// The header that says who caused an event: an [`Actor`](crate::Actor) as JSON.
pub const ACTOR: &str = "actor";

/// How large a message may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    max_payload: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_payload: DEFAULT_MAX_PAYLOAD }
    }
}

impl Limits {
    /// Sets the largest payload in bytes; at most [`LARGEST_MAX_PAYLOAD`], more is cut down to it.
    pub fn with_max_payload(self, bytes: usize) -> Self {
        Self { max_payload: bytes.min(LARGEST_MAX_PAYLOAD) }
    }

    /// The largest payload in bytes.
    pub fn max_payload(&self) -> usize {
        self.max_payload
    }
}

enum Body {
    Json(Result<String, serde_json::Error>),
    Bytes { content_type: String, bytes: Vec<u8> },
}

enum DeliverAt {
    Now,
    Time(SystemTime),
    After(Duration),
}

/// A message to enqueue. Nothing is checked before it is enqueued.
pub struct Message {
    id: Uuid,
    namespace: Cow<'static, str>,
    topic: Cow<'static, str>,
    key: Option<String>,
    tenant_id: Option<Uuid>,
    dedupe_key: Option<String>,
    body: Body,
    headers: Vec<(String, String)>,
    deliver_at: DeliverAt,
    max_attempts: Option<u32>,
}

impl Message {
    /// A message with a JSON payload made from any [`Serialize`].
    pub fn json<T: Serialize + ?Sized>(
        namespace: impl Into<Cow<'static, str>>,
        topic: impl Into<Cow<'static, str>>,
        payload: &T,
    ) -> Self {
        Self::new(namespace, topic, Body::Json(serde_json::to_string(payload)))
    }

    /// A message with a JSON payload made from the message's own id, for tables whose payload has to say it, such as an
    /// [`EventEnvelope`](crate::EventEnvelope).
    pub fn json_with_id<T: Serialize>(
        namespace: impl Into<Cow<'static, str>>,
        topic: impl Into<Cow<'static, str>>,
        payload: impl FnOnce(Uuid) -> T,
    ) -> Self {
        let mut message = Self::json(namespace, topic, &());
        message.body = Body::Json(serde_json::to_string(&payload(message.id)));
        message
    }

    /// A message whose payload is delivered byte for byte, with its content type.
    pub fn bytes(
        namespace: impl Into<Cow<'static, str>>,
        topic: impl Into<Cow<'static, str>>,
        content_type: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        let body = Body::Bytes { content_type: content_type.into(), bytes: payload.into() };
        Self::new(namespace, topic, body)
    }

    fn new(namespace: impl Into<Cow<'static, str>>, topic: impl Into<Cow<'static, str>>, body: Body) -> Self {
        Self {
            id: Uuid::now_v7(),
            namespace: namespace.into(),
            topic: topic.into(),
            key: None,
            tenant_id: None,
            dedupe_key: None,
            body,
            headers: Vec::new(),
            deliver_at: DeliverAt::Now,
            max_attempts: None,
        }
    }

    /// The id the message will have if it is new; the event id on every wire.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The tenant, if it has one.
    pub fn tenant_id(&self) -> Option<Uuid> {
        self.tenant_id
    }

    /// Sets the ordering and partition key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the tenant, which is not the nil UUID. With a dedupe key, that key must begin with this id and `/`.
    pub fn tenant(mut self, tenant_id: Uuid) -> Self {
        self.tenant_id = Some(tenant_id);
        self
    }

    /// Sets the idempotency key: at most one row per namespace, topic and dedupe key.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Self {
        self.dedupe_key = Some(key.into());
        self
    }

    /// Adds a header. Names are lower-cased; the last value of a name counts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Delays the message until a time.
    pub fn deliver_at(mut self, time: impl Into<SystemTime>) -> Self {
        self.deliver_at = DeliverAt::Time(time.into());
        self
    }

    /// Delays the message by a duration, counted on the database's clock.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_at = DeliverAt::After(delay);
        self
    }

    /// Sets how often this message is tried, instead of the dispatcher's number.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Checks everything and gives the row to insert, with the current span's trace context in its headers.
    pub fn into_row(self, limits: &Limits) -> Result<NewRow, InvalidMessage> {
        name::check("namespace", &self.namespace)?;
        name::check("topic", &self.topic)?;
        check_key("key", self.key.as_deref())?;
        check_key("dedupe key", self.dedupe_key.as_deref())?;
        if self.tenant_id.is_some_and(|tenant| tenant.is_nil()) {
            return Err(InvalidMessage::NilTenant);
        }
        check_tenant_prefix(self.tenant_id, self.dedupe_key.as_deref())?;
        let max_attempts = check_max_attempts(self.max_attempts)?;
        let mut headers = check_headers(self.headers)?;
        for (name, value) in trace::current() {
            headers.entry(name.to_owned()).or_insert(value);
        }
        let (payload, payload_bytes) = match self.body {
            Body::Json(text) => (check_json(text, limits)?, None),
            Body::Bytes { content_type, bytes } => {
                check_size(bytes.len(), limits)?;
                check_header_value(CONTENT_TYPE, &content_type)?;
                headers.insert(CONTENT_TYPE.to_owned(), content_type);
                ("null".to_owned(), Some(bytes))
            }
        };
        let (deliver_at_micros, delay_micros) = match self.deliver_at {
            DeliverAt::Now => (None, None),
            DeliverAt::Time(time) => (Some(micros_since_epoch(time)?), None),
            DeliverAt::After(delay) => (None, Some(micros(delay)?)),
        };
        Ok(NewRow {
            id: self.id,
            namespace: self.namespace,
            topic: self.topic,
            key: self.key,
            tenant_id: self.tenant_id,
            dedupe_key: self.dedupe_key.filter(|_| !sabotage::has(Defect::DedupeIgnored)),
            payload,
            payload_bytes,
            headers: serde_json::Value::from_iter(headers).to_string(),
            deliver_at_micros,
            delay_micros,
            max_attempts,
        })
    }
}

/// Payload and headers stay out of logs, also when a message is printed for debugging.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("namespace", &self.namespace)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

/// A message that passed every check: the columns a store inserts. Made by [`Message::into_row`] only.
#[derive(Clone)]
#[non_exhaustive]
#[allow(missing_docs)] // the columns of `outbox_messages`, documented in the migration
pub struct NewRow {
    pub id: Uuid,
    pub namespace: Cow<'static, str>,
    pub topic: Cow<'static, str>,
    pub key: Option<String>,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    /// JSON text; `null` when there are payload bytes.
    pub payload: String,
    pub payload_bytes: Option<Vec<u8>>,
    /// A JSON object of strings, as text.
    pub headers: String,
    /// Microseconds since 1970; neither this nor a delay means now.
    pub deliver_at_micros: Option<i64>,
    /// Microseconds after the database's `now()`.
    pub delay_micros: Option<i64>,
    pub max_attempts: Option<i32>,
}

impl NewRow {
    /// The headers by name.
    pub fn headers_given(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::from_str(&self.headers).unwrap_or_default()
    }
}

/// Payload and headers stay out of logs here as well.
impl fmt::Debug for NewRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRow")
            .field("id", &self.id)
            .field("namespace", &self.namespace)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

/// The answer to an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// The message was written with this id.
    New(Uuid),
    /// A message with this namespace, topic and dedupe key was there already; this is its id.
    Already(Uuid),
}

impl Enqueued {
    /// The id of the row, new or not.
    pub fn id(&self) -> Uuid {
        match self {
            Self::New(id) | Self::Already(id) => *id,
        }
    }

    /// Whether this call wrote the row.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// A message was refused before SQL. Nothing was written and the caller's transaction is still usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum InvalidMessage {
    #[error("the {what} is empty; give it at least one character")]
    Empty { what: &'static str },
    #[error("the {what} has {length} bytes, the limit is {limit}; shorten it")]
    TooLong { what: &'static str, length: usize, limit: usize },
    #[error("the {what} holds the character {found:?}; use ASCII letters, digits and . _ - : /")]
    BadCharacter { what: &'static str, found: char },
    #[error("the {what} holds the control character {found:?}; remove it")]
    ControlCharacter { what: &'static str, found: char },
    #[error("the payload has {length} bytes, the limit is {limit}; send a reference to it instead, or raise the limit")]
    PayloadTooLarge { length: usize, limit: usize },
    #[error("the payload could not be serialised: {why}")]
    NotSerialisable { why: String },
    #[error("the JSON payload cannot be stored: {why}; change it or send it as bytes")]
    Json { why: &'static str },
    #[error("the message has {count} headers, the limit is {limit}; put them into the payload")]
    TooManyHeaders { count: usize, limit: usize },
    #[error("the header name {name:?} is not a token of ASCII letters, digits and !#$%&'*+-.^_`|~")]
    BadHeaderName { name: String },
    #[error("the header {name:?} is reserved for Postrider; choose another name")]
    ReservedHeader { name: String },
    #[error("the value of header {name:?} is longer than {limit} bytes or holds a control character")]
    BadHeaderValue { name: String, limit: usize },
    #[error(
        "the dedupe key does not begin with the tenant's id {tenant} (lower case, with or without hyphens) and '/'; prefix it, or leave one of the two out"
    )]
    TenantMismatch { tenant: Uuid },
    #[error("the tenant is the nil UUID, which stands for no tenant; give the tenant's own id, or leave it out")]
    NilTenant,
    #[error("max_attempts is {given}; it must be from 1 to {limit}")]
    MaxAttempts { given: u32, limit: u32 },
    #[error("the delivery time is out of range; use a time between 1970 and 9999")]
    DeliverAt,
    #[error("the layout {layout:?} has no column for the {what}; leave it out, or use a table that has one")]
    NoColumn { layout: String, what: String },
    #[error("the layout {layout:?} needs a {what}; give the message one")]
    Required { layout: String, what: String },
    #[error("all messages of the layout {layout:?} have the {what} {only:?}; this one has {given:?}")]
    Elsewhere { layout: String, what: &'static str, only: String, given: String },
    #[error("the {what} does not fit into the column {column:?} of the layout {layout:?}, which is of type {kind:?}")]
    NotOfColumn { layout: String, what: &'static str, column: String, kind: String },
    #[error(
        "the {what} is longer than the {limit} characters of the column {column:?} of the layout {layout:?}; shorten it"
    )]
    TooLongForColumn { layout: String, what: &'static str, column: String, limit: u32 },
}

fn check_key(what: &'static str, key: Option<&str>) -> Result<(), InvalidMessage> {
    let Some(key) = key else { return Ok(()) };
    if key.is_empty() {
        return Err(InvalidMessage::Empty { what });
    }
    if key.len() > MAX_KEY_LENGTH {
        return Err(InvalidMessage::TooLong { what, length: key.len(), limit: MAX_KEY_LENGTH });
    }
    match key.chars().find(|c| c.is_control()) {
        Some(found) => Err(InvalidMessage::ControlCharacter { what, found }),
        None => Ok(()),
    }
}

/// Seed 0's rule: with both set, the key begins with the tenant's lower-case hex form and a slash.
fn check_tenant_prefix(tenant: Option<Uuid>, dedupe_key: Option<&str>) -> Result<(), InvalidMessage> {
    let (Some(tenant), Some(key)) = (tenant, dedupe_key) else { return Ok(()) };
    let prefix = key.split_once('/').map(|(prefix, _)| prefix);
    let hyphenated = tenant.hyphenated().to_string();
    let simple = tenant.simple().to_string();
    if prefix == Some(hyphenated.as_str()) || prefix == Some(simple.as_str()) {
        Ok(())
    } else {
        Err(InvalidMessage::TenantMismatch { tenant })
    }
}

const LARGEST_MAX_ATTEMPTS: u32 = 1_000;

fn check_max_attempts(given: Option<u32>) -> Result<Option<i32>, InvalidMessage> {
    match given {
        None => Ok(None),
        Some(given @ 1..=LARGEST_MAX_ATTEMPTS) => Ok(i32::try_from(given).ok()),
        Some(given) => Err(InvalidMessage::MaxAttempts { given, limit: LARGEST_MAX_ATTEMPTS }),
    }
}

fn check_headers(headers: Vec<(String, String)>) -> Result<BTreeMap<String, String>, InvalidMessage> {
    if headers.len() > MAX_HEADERS {
        return Err(InvalidMessage::TooManyHeaders { count: headers.len(), limit: MAX_HEADERS });
    }
    let mut checked = BTreeMap::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if name.is_empty() || name.len() > MAX_HEADER_NAME || !name.bytes().all(is_token) {
            return Err(InvalidMessage::BadHeaderName { name: name.chars().take(64).collect() });
        }
        if name.starts_with(RESERVED_HEADER_PREFIX) {
            return Err(InvalidMessage::ReservedHeader { name });
        }
        check_header_value(&name, &value)?;
        checked.insert(name, value);
    }
    Ok(checked)
}

fn check_header_value(name: &str, value: &str) -> Result<(), InvalidMessage> {
    if value.len() > MAX_HEADER_VALUE || value.chars().any(char::is_control) {
        return Err(InvalidMessage::BadHeaderValue { name: name.to_owned(), limit: MAX_HEADER_VALUE });
    }
    Ok(())
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn check_json(text: Result<String, serde_json::Error>, limits: &Limits) -> Result<String, InvalidMessage> {
    let text = text.map_err(|error| InvalidMessage::NotSerialisable { why: error.to_string() })?;
    check_size(text.len(), limits)?;
    json::check(&text)?;
    Ok(text)
}

fn check_size(length: usize, limits: &Limits) -> Result<(), InvalidMessage> {
    if length > limits.max_payload {
        return Err(InvalidMessage::PayloadTooLarge { length, limit: limits.max_payload });
    }
    Ok(())
}

/// The last second of the year 9999, so that every database and language can hold the time.
const LATEST_TIME_MICROS: i64 = 253_402_300_799 * 1_000_000;

fn micros_since_epoch(time: SystemTime) -> Result<i64, InvalidMessage> {
    micros(time.duration_since(UNIX_EPOCH).map_err(|_| InvalidMessage::DeliverAt)?)
}

fn micros(duration: Duration) -> Result<i64, InvalidMessage> {
    i64::try_from(duration.as_micros())
        .ok()
        .filter(|micros| *micros <= LATEST_TIME_MICROS)
        .ok_or(InvalidMessage::DeliverAt)
}
