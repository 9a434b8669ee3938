//! What kind of failure a statement met, and what a consumer is told.

pub use postrider_store::failure::Kind;

use crate::InboxError;

type Source = Box<dyn std::error::Error + Send + Sync>;

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
