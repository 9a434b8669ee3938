//! Values as SQLite has them: ids as text, lists as JSON, times as microseconds.

use postrider_core::lease::RowAddress;
use postrider_core::store::Scope;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Encode, Row, Sqlite, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::statements::SHORT_TURN;
use crate::claimed::lossy;

/// Arguments for a statement; a value that cannot be encoded is reported when the statement is run.
#[derive(Default)]
pub(super) struct Bound {
    arguments: SqliteArguments,
    failed: Option<sqlx::error::BoxDynError>,
}

impl Bound {
    pub fn add<'q, T: Encode<'q, Sqlite> + Type<Sqlite> + 'q>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
        self
    }

    pub fn id(&mut self, id: Uuid) -> &mut Self {
        self.add(id.hyphenated())
    }

    pub fn scope(&mut self, scope: &Scope) -> &mut Self {
        let namespaces = scope.namespaces.as_ref().map(|names| {
            let mut names = names.clone();
            names.sort_unstable();
            names.dedup();
            json(names)
        });
        self.add(namespaces).add(scope.tenant.map(Uuid::hyphenated))
    }

    pub fn finish(&mut self) -> Result<SqliteArguments, sqlx::Error> {
        match self.failed.take() {
            None => Ok(std::mem::take(&mut self.arguments)),
            Some(error) => Err(sqlx::Error::Encode(error)),
        }
    }
}

/// A list as one parameter.
pub(super) fn json<T: Into<serde_json::Value>>(items: impl IntoIterator<Item = T>) -> String {
    serde_json::Value::from_iter(items).to_string()
}

pub(super) fn read_id(row: &SqliteRow, at: usize) -> Result<Uuid, sqlx::Error> {
    Ok(row.try_get::<Hyphenated, _>(at)?.into_uuid())
}

/// Reads the bytes of a value, whatever its type is.
pub(super) fn bytes(row: &SqliteRow, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
    row.try_get_unchecked(at)
}

/// Reads a key. A plain insert may have written bytes that are no text; the row is delivered all the same.
pub(super) fn key(row: &SqliteRow, at: usize) -> Result<Option<String>, sqlx::Error> {
    Ok(bytes(row, at)?.map(lossy))
}

/// A row's number is its address: it never moves, and its number is never given to another.
pub(super) fn address(seq: i64) -> RowAddress {
    RowAddress(u64::try_from(seq).unwrap_or_default())
}

/// The bits of an address that are the row's number, where the claim's turn has the others.
const NUMBER_BITS: u32 = 40;

/// A row's number and its claim's turn, where that is part of the fence. A number that has no room is left out: the row is then found by
/// its id.
pub(super) fn with_turn(seq: i64, turn: i64) -> RowAddress {
    let seq = u64::try_from(seq).ok().filter(|seq| seq >> NUMBER_BITS == 0).unwrap_or_default();
    RowAddress(seq | (turn & SHORT_TURN).cast_unsigned() << NUMBER_BITS)
}

/// Both of them again.
pub(super) fn number_and_turn(address: RowAddress) -> (i64, i64) {
    let number = address.0 & !(u64::MAX << NUMBER_BITS);
    (number.cast_signed(), (address.0 >> NUMBER_BITS).cast_signed())
}

/// An address that is no number of a row points nowhere, and the row is then found by its id.
pub(super) fn number(address: RowAddress) -> i64 {
    i64::try_from(address.0).unwrap_or_default()
}
