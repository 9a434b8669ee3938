//! What kind of failure a statement met, and what its caller is told.

use postrider_core::store::StoreErrorKind;

use crate::ChangelogError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A unique key is there already.
    Duplicate,
    /// The transaction must be rolled back and may be tried again.
    Conflict,
    /// The database cannot be reached.
    Unavailable,
    /// A table or column is missing.
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
            sqlx::Error::Configuration(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::Encode(_) => Self::Refused,
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

    /// What was read is not what was written.
    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Self::new(Kind::Refused, what.into())
    }

    /// An error of a statement about the application's own tables: what is missing there is not ours to migrate.
    pub(crate) fn of_application(self) -> ChangelogError {
        match self.kind {
            Kind::Schema => ChangelogError::Failed(self.source),
            _ => self.into(),
        }
    }
}

impl From<Failed> for ChangelogError {
    fn from(Failed { kind, source }: Failed) -> Self {
        match kind {
            Kind::Conflict => Self::Conflict(source),
            Kind::Unavailable => Self::Unavailable(source),
            Kind::Schema => Self::Schema(source),
            // The server's text names the user.
            Kind::Login => Self::Failed("the database refused the login; check user, password and host".into()),
            Kind::Duplicate | Kind::Refused => Self::Failed(source),
        }
    }
}
