//! Values as SQLite has them: ids as text, lists as JSON, times as microseconds.

use postrider_core::lease::RowAddress;
use postrider_core::store::Scope;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Encode, Row, Sqlite, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

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

/// A row's number is its address: it never moves, and its number is never given to another.
pub(super) fn address(seq: i64) -> RowAddress {
    RowAddress(u64::try_from(seq).unwrap_or_default())
}

/// An address that is no number of a row points nowhere, and the row is then found by its id.
pub(super) fn number(address: RowAddress) -> i64 {
    i64::try_from(address.0).unwrap_or_default()
}
