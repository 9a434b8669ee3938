//! What is read: entries, pages of them, and cursors that say how far one has read.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::{InvalidPayload, InvalidVersionstamp, Payload, Versionstamp};

/// One unit of work that was committed.
///
/// Serialised, it is what the HTTP endpoint and the sinks send: `{id, versionstamp, uowId, payload, refMap, createdAt}`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The id of the entry; the event id on every wire.
    pub id: Uuid,
    /// Its place in the order of commits.
    pub versionstamp: Versionstamp,
    /// The id of the unit of work, its idempotency key.
    pub uow_id: String,
    /// The mutations as superjson text, `{"json": …, "meta": …}`, as they were written.
    pub payload: Box<RawValue>,
    /// The external ids of references that were known by their internal ids only, by placeholder.
    pub ref_map: Option<BTreeMap<String, String>>,
    /// When it was written, on the database's clock.
    pub created_at: SystemTime,
}

impl Entry {
    /// The mutations, with placeholders where references were known by their internal ids only.
    pub fn payload(&self) -> Result<Payload, InvalidPayload> {
        Payload::from_superjson(self.payload.get())
    }

    /// The mutations, with external ids in place of the placeholders.
    pub fn resolved(&self) -> Result<Payload, InvalidPayload> {
        let none = BTreeMap::new();
        self.payload()?.resolved(self.ref_map.as_ref().unwrap_or(&none))
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = OffsetDateTime::from(self.created_at).format(&Rfc3339).map_err(serde::ser::Error::custom)?;
        let mut entry = serializer.serialize_struct("Entry", 6)?;
        entry.serialize_field("id", &self.id)?;
        entry.serialize_field("versionstamp", &self.versionstamp)?;
        entry.serialize_field("uowId", &self.uow_id)?;
        entry.serialize_field("payload", &self.payload)?;
        entry.serialize_field("refMap", &self.ref_map)?;
        entry.serialize_field("createdAt", &time)?;
        entry.end()
    }
}

/// The payload stays out of logs, also when an entry is printed for debugging.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .field("versionstamp", &self.versionstamp)
            .field("uow_id", &self.uow_id)
            .finish_non_exhaustive()
    }
}

/// How far one has read: the last entry, and in which changelog it is.
///
/// A cursor is checked when it is used. If the database was restored from a backup since, or is another one, it is refused
/// instead of going on where something else happened. Its text is opaque; keep it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor {
    store: Uuid,
    versionstamp: Versionstamp,
    entry: Option<Uuid>,
}

impl Cursor {
    /// Before the first entry of a changelog.
    pub fn beginning(store: Uuid) -> Self {
        Self { store, versionstamp: Versionstamp::ZERO, entry: None }
    }

    /// At an entry of a changelog: the next one is the one after it.
    pub fn at(store: Uuid, entry: &Entry) -> Self {
        Self::new(store, entry.versionstamp, Some(entry.id))
    }

    #[cfg_attr(not(feature = "sql"), allow(dead_code))]
    pub(crate) fn new(store: Uuid, versionstamp: Versionstamp, entry: Option<Uuid>) -> Self {
        Self { store, versionstamp, entry }
    }

    /// The changelog.
    pub fn store(&self) -> Uuid {
        self.store
    }

    /// The stamp of the last entry that was read; zeros at the beginning.
    pub fn versionstamp(&self) -> Versionstamp {
        self.versionstamp
    }

    /// The id of the last entry that was read; none at the beginning, and where a bare stamp was given.
    pub fn entry(&self) -> Option<Uuid> {
        self.entry
    }
}

/// What the text of a cursor begins with.
const MARK: &str = "c1";

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.entry.unwrap_or_default();
        write!(f, "{MARK}.{}.{}.{}", self.store.simple(), self.versionstamp, entry.simple())
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let parts: Vec<&str> = text.split('.').collect();
        let [MARK, store, stamp, entry] = parts[..] else { return Err(InvalidCursor::Form) };
        let id = |text: &str| Uuid::try_parse(text).map_err(|_| InvalidCursor::Form);
        let versionstamp = stamp.parse()?;
        let entry = Some(id(entry)?).filter(|entry| !entry.is_nil());
        Ok(Self { store: id(store)?, versionstamp, entry })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A text is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidCursor {
    #[error(
        "this is no cursor of a changelog; pass the text on as it was given, or a versionstamp of 24 hexadecimal digits"
    )]
    Form,
    #[error(transparent)]
    Versionstamp(#[from] InvalidVersionstamp),
}

/// From where to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum After {
    /// From the first entry.
    #[default]
    Beginning,
    /// After a stamp, whether there is such an entry or not. Not checked: prefer a cursor.
    Versionstamp(Versionstamp),
    /// After what a cursor has read, if it is of this changelog.
    Cursor(Cursor),
}

impl From<Versionstamp> for After {
    fn from(stamp: Versionstamp) -> Self {
        Self::Versionstamp(stamp)
    }
}

impl From<Cursor> for After {
    fn from(cursor: Cursor) -> Self {
        Self::Cursor(cursor)
    }
}

impl FromStr for After {
    type Err = InvalidCursor;

    /// Reads a cursor or a versionstamp.
    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        match text.contains('.') {
            true => Ok(Self::Cursor(text.parse()?)),
            false => Ok(Self::Versionstamp(text.parse()?)),
        }
    }
}

/// Entries in the order of their commits.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The changelog.
    pub store: Uuid,
    /// The entries.
    pub entries: Vec<Entry>,
    /// How far one has read with them: go on after it.
    pub next: Cursor,
    /// Whether there were more when it was read.
    pub more: bool,
}
