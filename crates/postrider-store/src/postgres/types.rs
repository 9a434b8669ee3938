//! Values of PostgreSQL that sqlx leaves out: row addresses, and times as plain microseconds.

use std::time::Duration;

use postrider_core::lease::RowAddress;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

use crate::clock::between;

const TIMESTAMPTZ: Oid = Oid(1184);
/// From 1970, where our times begin, to 2000, where PostgreSQL's do.
const EPOCH_OFFSET_MICROS: i64 = 946_684_800_000_000;

/// A row's physical address (`ctid`) in PostgreSQL's words, `(block,line)`. It travels as text because sqlx does not
/// know its type, and looking the type up would come between a statement's preparation and its execution, which a
/// transaction pooler does not survive.
pub(super) fn address_text(address: RowAddress) -> String {
    format!("({},{})", address.0 >> 16, address.0 & 0xFFFF)
}

/// Reads an address; one that cannot be read points nowhere, and the row is then found by its id. Where claims go by turns the turn
/// is in its place, a plain number.
pub(super) fn address(text: &str) -> RowAddress {
    if let Ok(turn) = text.parse::<i64>() {
        return RowAddress(turn.cast_unsigned());
    }
    let inner = text.trim_start_matches('(').trim_end_matches(')');
    let parts =
        inner.split_once(',').and_then(|(block, line)| Some((block.parse::<u64>().ok()?, line.parse::<u64>().ok()?)));
    parts.map_or(RowAddress::default(), |(block, line)| RowAddress(block << 16 | line))
}

/// A `timestamptz` as microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Micros(pub i64);

impl Micros {
    /// The time from `earlier` to this; zero if it is the other way round.
    pub fn since(self, earlier: Self) -> Duration {
        between(earlier.0, self.0)
    }
}

impl Type<Postgres> for Micros {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl<'r> Decode<'r, Postgres> for Micros {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(since_2000.saturating_add(EPOCH_OFFSET_MICROS)))
    }
}

impl Encode<'_, Postgres> for Micros {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend(&self.0.saturating_sub(EPOCH_OFFSET_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in ["(0,1)", "(4294967295,65535)", "(123456,42)"] {
            assert_eq!(address_text(address(text)), text);
        }
        assert_eq!(address("nonsense"), RowAddress::default());
        assert_eq!(address("-1"), RowAddress(u64::MAX));
    }
}
