//! Values as they go to MySQL and come back: UUIDs as text, which anybody can read and type, and texts as bytes.

use std::sync::Arc;

use postrider_core::lease::{Lease, RowAddress};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Arguments, Encode, MySql, Row, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::statements::Shape;
use crate::claimed::{lossy, plain_uuid};

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

    /// What a row is found by.
    pub fn row(&mut self, row: &RowKey) -> &mut Self {
        match row {
            RowKey::Number(number) => self.add(*number),
            RowKey::Id(id, form) => self.add(form.text(*id)),
            RowKey::Odd(text) => self.add(text.to_string()),
        }
    }

    /// A list of rows.
    pub fn rows(&mut self, rows: Vec<&RowKey>) -> &mut Self {
        for row in rows {
            self.row(row);
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

/// What a row is found by: its number in our own table, its id in others. In the order of the primary key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RowKey {
    Number(i64),
    Id(Uuid, Form),
    /// What is in the place of an id and is none. Such a row can only be given up or deleted.
    Odd(Arc<str>),
}

/// How the text of a UUID differs from the usual one, so that a row is found again by exactly what it has: a bit for each digit that
/// is an upper-case letter, and one if there are no hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Form(u64);

/// The bits of a form. Those above are for the turn.
const FORM_BITS: u32 = 33;
const NO_HYPHENS: u64 = 1 << 32;

impl Form {
    fn of(text: &str) -> Self {
        let digits = text.bytes().filter(u8::is_ascii_hexdigit);
        let upper = digits.zip(0..32).filter(|(digit, _)| digit.is_ascii_uppercase());
        let upper = upper.fold(0, |bits, (_, at)| bits | 1 << at);
        Self(if text.contains('-') { upper } else { upper | NO_HYPHENS })
    }

    /// The id as the row has it.
    fn text(self, id: Uuid) -> String {
        let usual = if self.0 & NO_HYPHENS == 0 { id.hyphenated().to_string() } else { id.simple().to_string() };
        let mut digit = 0;
        let written = |character: char| {
            let is_upper = character != '-' && self.0 & 1 << digit != 0;
            digit += u32::from(character != '-');
            if is_upper { character.to_ascii_uppercase() } else { character }
        };
        usual.chars().map(written).collect()
    }
}

/// As much of a turn as there is room for beside the form.
fn short(turn: i64) -> u64 {
    turn.cast_unsigned() & (u64::MAX >> FORM_BITS)
}

impl RowKey {
    /// Reads one.
    pub fn read(row: &MySqlRow, column: usize, shape: Shape) -> Result<Self, sqlx::Error> {
        match shape.numbered {
            true => row.try_get(column).map(Self::Number),
            false => {
                let text = lossy(row.try_get_unchecked(column)?);
                Ok(match plain_uuid(&text) {
                    Some(id) => Self::Id(id, Form::of(&text)),
                    None => Self::Odd(text.into()),
                })
            }
        }
    }

    /// The row's address: its number, or the form of its id and the claim's turn.
    pub fn address(&self, turn: i64) -> RowAddress {
        match self {
            Self::Number(number) => address(*number),
            Self::Id(_, form) => RowAddress(form.0 | short(turn) << FORM_BITS),
            Self::Odd(_) => RowAddress::default(),
        }
    }

    /// Whether a statement that deletes finds exactly this row: it compares with a text of as many characters as an id has.
    pub fn is_deletable(&self) -> bool {
        match self {
            Self::Number(_) | Self::Id(..) => true,
            Self::Odd(text) => text.is_ascii() && text.len() <= Hyphenated::LENGTH,
        }
    }

    /// Where a leased row is; nothing if that is not known.
    pub fn of(lease: &Lease, shape: Shape) -> Option<Self> {
        match shape.numbered {
            true => seq(lease.address).map(Self::Number),
            false => Some(Self::Id(lease.id, Form(lease.address.0 & !(u64::MAX << FORM_BITS)))),
        }
    }

    /// Whether a lease is of this turn.
    pub fn is_turn_of(lease: &Lease, turn: i64) -> bool {
        lease.address.0 >> FORM_BITS == short(turn)
    }
}

/// Reads a UUID.
pub(super) fn uuid(row: &MySqlRow, column: usize) -> Result<Uuid, sqlx::Error> {
    row.try_get::<Hyphenated, _>(column).map(Hyphenated::into_uuid)
}

/// Reads a UUID; none if it is null, or anything else.
pub(super) fn uuid_or_null(row: &MySqlRow, column: usize) -> Result<Option<Uuid>, sqlx::Error> {
    Ok(bytes(row, column)?.and_then(|bytes| plain_uuid(&lossy(bytes))))
}

/// Reads the bytes of a text, whatever they are.
pub(super) fn bytes(row: &MySqlRow, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
    row.try_get_unchecked(column)
}

/// Reads a key. A plain insert may have written bytes that are no text; the row is delivered all the same.
pub(super) fn key(row: &MySqlRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    Ok(bytes(row, column)?.map(lossy))
}

/// Reads a text for somebody to look at.
pub(super) fn text(row: &MySqlRow, column: usize) -> Result<String, sqlx::Error> {
    Ok(key(row, column)?.unwrap_or_default())
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
    fn ids_are_found_again_as_they_were_written() {
        let id = Uuid::from_u128(0x0a1b_2c3d_4e5f_8071_92a3_b4c5_d6e7_f809);
        let (usual, plain) = (id.hyphenated().to_string(), id.simple().to_string());
        for text in [usual.clone(), usual.to_uppercase(), plain.clone(), plain.to_uppercase(), usual.replace('a', "A")]
        {
            let row = RowKey::Id(id, Form::of(&text));
            let lease = Lease { id, worker: id, attempt: 1, address: row.address(-7) };
            let shape = Shape { numbered: false, worker: false, lease: false, error: false, turns: true };
            assert_eq!(RowKey::of(&lease, shape), Some(row.clone()));
            assert!(RowKey::is_turn_of(&lease, -7) && !RowKey::is_turn_of(&lease, 7));
            let RowKey::Id(id, form) = row else { unreachable!("it is an id") };
            assert_eq!(form.text(id), text);
        }
    }

    #[test]
    fn addresses_read_back_and_the_unknown_one_is_known_as_such() {
        assert_eq!(seq(address(7)), Some(7));
        assert_eq!(seq(RowAddress::default()), None);
        assert_eq!(seq(RowAddress(u64::MAX)), None);
    }
}
