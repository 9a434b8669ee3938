//! What kind of failure a statement of a sister crate met: the inbox's and the changelog's.

use postrider_core::store::StoreErrorKind;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A unique key is there already.
    Duplicate,
    /// Somebody else has the lock. The transaction is still usable.
    Held,
    /// The transaction must be rolled back and may be tried again.
    Conflict,
    /// The database cannot be reached.
    Unavailable,
    /// A table or column is missing or differs.
    Schema,
    /// The login was refused.
    Login,
    /// Anything else.
    Refused,
}

impl From<StoreErrorKind> for Kind {
    fn from(kind: StoreErrorKind) -> Self {
        match kind {
            StoreErrorKind::Conflict => Self::Conflict,
            StoreErrorKind::Unavailable => Self::Unavailable,
            StoreErrorKind::Schema => Self::Schema,
            _ => Self::Refused,
        }
    }
}

impl Kind {
    /// An error of sqlx that has no code from the database.
    pub fn without_code(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Configuration(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::Encode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::PoolClosed => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}
