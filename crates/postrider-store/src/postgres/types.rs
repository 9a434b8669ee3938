//! Two PostgreSQL types that sqlx leaves out: row addresses, and times as plain microseconds.

use std::time::Duration;

use postrider_core::lease::RowAddress;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

const TID: Oid = Oid(27);
const TID_ARRAY: Oid = Oid(1010);
const TIMESTAMPTZ: Oid = Oid(1184);
/// From 1970, where our times begin, to 2000, where PostgreSQL's do.
const EPOCH_OFFSET_MICROS: i64 = 946_684_800_000_000;

/// A row's physical address, `ctid`: block and line, packed into a [`RowAddress`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Tid(pub RowAddress);

impl Type<Postgres> for Tid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID)
    }
}

impl PgHasArrayType for Tid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID_ARRAY)
    }
}

impl<'r> Decode<'r, Postgres> for Tid {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let bytes: [u8; 6] = value.as_bytes()?.try_into()?;
        let mut packed = [0; 8];
        packed[2..].copy_from_slice(&bytes);
        Ok(Self(RowAddress(u64::from_be_bytes(packed))))
    }
}

impl Encode<'_, Postgres> for Tid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.0.to_be_bytes()[2..]);
        Ok(IsNull::No)
    }
}

/// A `timestamptz` as microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Micros(pub i64);

impl Micros {
    /// The time from `earlier` to this; zero if it is the other way round.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
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

/// A century: longer delays and leases mean nothing, and would overflow a time on the server.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A duration as a `bigint` of microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
