//! Whether a message fits into a table. What does not is refused before SQL, so that the caller's transaction stays usable.

use postrider_core::message::{InvalidMessage, NewRow};
use uuid::Uuid;

use super::{Ability, Column, Layout, Text};

/// Headers that come from the trace of the caller, not from the caller; a table without a place for them goes without.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

impl Layout {
    /// Refuses a message that the table has no place for.
    pub(crate) fn fits(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        if self.is_ours() {
            return Ok(());
        }
        let given = [
            (true, Ability::Enqueue, "id"),
            (row.key.is_some(), Ability::Keys, "key"),
            (row.tenant_id.is_some(), Ability::Tenants, "tenant"),
            (row.dedupe_key.is_some(), Ability::DedupeKeys, "dedupe key"),
            (row.payload_bytes.is_some(), Ability::Bytes, "payload of bytes"),
            (row.deliver_at_micros.is_some() || row.delay_micros.is_some(), Ability::Delays, "delivery time"),
            (row.max_attempts.is_some(), Ability::MaxAttempts, "number of attempts"),
        ];
        for (is_given, ability, what) in given {
            if is_given && !self.can(ability) {
                return Err(self.no_column(what));
            }
        }
        if self.key_required && row.key.is_none() {
            return Err(self.required("key"));
        }
        if self.tenant_required && row.tenant_id.is_none() {
            return Err(self.required("tenant"));
        }
        self.fits_text("namespace", &self.namespace, &row.namespace)?;
        self.fits_text("topic", &self.topic, &row.topic)?;
        if let (Some(column), Some(key)) = (&self.key, &row.key) {
            self.fits_column("key", column, key)?;
        }
        if let (Some(column), Some(key)) = (&self.dedupe_key, &row.dedupe_key) {
            self.fits_column("dedupe key", column, key)?;
        }
        self.fits_fields(row)
    }

    /// The columns that headers are written to: those that nothing else is written to.
    pub(crate) fn written_fields(&self) -> impl Iterator<Item = (&String, &Column)> {
        let taken: Vec<&str> = self.columns().iter().map(|(_, column)| column.name.as_str()).collect();
        self.fields.iter().filter(move |(_, column)| !taken.contains(&column.name.as_str()))
    }

    fn fits_fields(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        let headers = row.headers_given();
        for (name, column) in self.written_fields() {
            match headers.get(name).and_then(|value| value.as_str()) {
                Some(value) => self.fits_column("header", column, value)?,
                None => return Err(self.required(format!("header {name:?}"))),
            }
        }
        let known = |name: &String| self.fields.contains_key(name) || TRACE.contains(&name.as_str());
        match headers.keys().find(|name| self.headers.is_none() && !known(name)) {
            Some(name) => Err(self.no_column(format!("header {name:?}"))),
            None => Ok(()),
        }
    }

    fn fits_text(&self, what: &'static str, place: &Text, given: &str) -> Result<(), InvalidMessage> {
        match place {
            Text::Column(column) => self.fits_column(what, column, given),
            Text::Fixed { fixed } if fixed == given => Ok(()),
            Text::Fixed { fixed } => Err(InvalidMessage::Elsewhere {
                layout: self.name.to_string(),
                what,
                only: fixed.clone(),
                given: given.to_owned(),
            }),
        }
    }

    fn fits_column(&self, what: &'static str, column: &Column, given: &str) -> Result<(), InvalidMessage> {
        if let Some(limit) = column.max_length
            && given.chars().count() > usize::try_from(limit).unwrap_or(usize::MAX)
        {
            let (layout, column) = (self.name.to_string(), column.name.clone());
            return Err(InvalidMessage::TooLongForColumn { layout, what, column, limit });
        }
        let fits = match column.kind.as_deref() {
            _ if !column.values.is_empty() => column.values.iter().any(|value| value == given),
            Some("uuid") => Uuid::try_parse(given).is_ok(),
            _ => true,
        };
        match fits {
            true => Ok(()),
            false => Err(InvalidMessage::NotOfColumn {
                layout: self.name.to_string(),
                what,
                column: column.name.clone(),
                kind: column.kind.clone().unwrap_or_default(),
            }),
        }
    }

    fn no_column(&self, what: impl Into<String>) -> InvalidMessage {
        InvalidMessage::NoColumn { layout: self.name.to_string(), what: what.into() }
    }

    fn required(&self, what: impl Into<String>) -> InvalidMessage {
        InvalidMessage::Required { layout: self.name.to_string(), what: what.into() }
    }
}
