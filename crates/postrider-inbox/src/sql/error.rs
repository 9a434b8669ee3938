//! What kind of failure a statement met, and what a consumer is told.

use postrider_core::store::StoreErrorKind;

use crate::InboxError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The key is there already.
    Duplicate,
    /// Somebody else has the lock. The transaction is still usable.
    Held,
    /// The transaction must be rolled back and may be tried again.
    Conflict,
    /// The database cannot be reached.
    Unavailable,
    /// A table is missing or differs.
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
    pub(crate) fn without_code(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Configuration(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

/// A statement failed.
#[derive(Debug, thiserror::Error)]
#[error("a statement failed")]
pub struct Failed {
    pub kind: Kind,
    source: Source,
}

impl Failed {
    pub(crate) fn new(kind: Kind, source: impl Into<Source>) -> Self {
        Self { kind, source: source.into() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the inbox's tables are missing or differ; run its migrations")]
struct WithoutTables(#[source] Source);

impl From<Failed> for InboxError {
    fn from(Failed { kind, source }: Failed) -> Self {
        match kind {
            Kind::Conflict | Kind::Held => Self::Conflict(source),
            Kind::Unavailable => Self::Unavailable(source),
            Kind::Schema => Self::Failed(Box::new(WithoutTables(source))),
            // The server's text names the user.
            Kind::Login => Self::Failed("the database refused the login; check user, password and host".into()),
            Kind::Duplicate | Kind::Refused => Self::Failed(source),
        }
    }
}
