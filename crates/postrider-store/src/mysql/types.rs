//! Values as they go to MySQL and come back: UUIDs as text, which anybody can read and type, and texts as bytes.

use postrider_core::lease::RowAddress;
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Arguments, Encode, MySql, Row, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Arguments for a statement; a value that cannot be encoded is reported when the statement is run.
#[derive(Default)]
pub(super) struct Bound {
    arguments: MySqlArguments,
    failed: Option<BoxDynError>,
}

impl Bound {
    pub fn add<'q, T: Encode<'q, MySql> + Type<MySql> + 'q>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
        self
    }

    pub fn uuid(&mut self, value: Uuid) -> &mut Self {
        self.add(value.hyphenated())
    }

    /// For a condition that says `(? is null or tenant_id = ?)`.
    pub fn tenant(&mut self, tenant: Option<Uuid>) -> &mut Self {
        let tenant = tenant.map(Uuid::hyphenated);
        self.add(tenant).add(tenant)
    }

    /// A list of rows' numbers.
    pub fn rows(&mut self, rows: Vec<&i64>) -> &mut Self {
        for row in rows {
            self.add(*row);
        }
        self
    }

    /// A list of UUIDs.
    pub fn uuids(&mut self, uuids: Vec<&Uuid>) -> &mut Self {
        for uuid in uuids {
            self.uuid(*uuid);
        }
        self
    }

    /// A number of rows.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.add(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub fn finish(self) -> Result<MySqlArguments, sqlx::Error> {
        match self.failed {
            None => Ok(self.arguments),
            Some(error) => Err(sqlx::Error::Encode(error)),
        }
    }
}

/// Reads a UUID.
pub(super) fn uuid(row: &MySqlRow, column: usize) -> Result<Uuid, sqlx::Error> {
    row.try_get::<Hyphenated, _>(column).map(Hyphenated::into_uuid)
}

/// Reads a UUID that may be null.
pub(super) fn uuid_or_null(row: &MySqlRow, column: usize) -> Result<Option<Uuid>, sqlx::Error> {
    Ok(row.try_get::<Option<Hyphenated>, _>(column)?.map(Hyphenated::into_uuid))
}

/// Reads a key. A plain insert may have written bytes that are no text; the row is delivered all the same.
pub(super) fn key(row: &MySqlRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    Ok(bytes.map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

/// A row's number as its address; rows are never renumbered, so it always finds the row.
pub(super) fn address(seq: i64) -> RowAddress {
    RowAddress(u64::try_from(seq).unwrap_or_default())
}

/// The number at an address; nothing if it is not known.
pub(super) fn seq(address: RowAddress) -> Option<i64> {
    i64::try_from(address.0).ok().filter(|seq| *seq > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_and_the_unknown_one_is_known_as_such() {
        assert_eq!(seq(address(7)), Some(7));
        assert_eq!(seq(RowAddress::default()), None);
        assert_eq!(seq(RowAddress(u64::MAX)), None);
    }
}
