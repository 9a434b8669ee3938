//! What kind of failure a statement met, and what its caller is told.

pub use postrider_store::failure::Kind;
use sqlx::error::ErrorKind;

use crate::{ChangelogError, Violation};

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

    /// What was read is not what was written.
    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Self::new(Kind::Refused, what.into())
    }

    /// Whether the column of this name was to be null and cannot be.
    pub(crate) fn is_null_in(&self, column: &str) -> bool {
        let error = self.source.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
        error.is_some_and(|error| {
            let message = error.message();
            // PostgreSQL and MySQL have the name in quotes, and SQLite has it after that of the table.
            let named = [format!("\"{column}\""), format!("'{column}'")].iter().any(|name| message.contains(name))
                || message.ends_with(&format!(".{column}"));
            error.kind() == sqlx::error::ErrorKind::NotNullViolation && named
        })
    }

    /// Whether the database's text names one of these.
    pub(crate) fn names(&self, names: [&str; 2]) -> bool {
        let error = self.source.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
        error.is_some_and(|error| names.iter().any(|name| error.message().contains(name)))
    }

    /// An error of a statement about the application's own tables: what is missing there is not ours to migrate, and what the
    /// database says of it may hold values.
    pub(crate) fn of_application(self) -> ChangelogError {
        let Self { kind, source } = self;
        match kind {
            Kind::Schema | Kind::Duplicate | Kind::Refused => without_values(source),
            _ => Self { kind, source }.into(),
        }
    }
}

/// What a database said of the application's tables, without the values that it quotes.
fn without_values(source: Source) -> ChangelogError {
    let error = source.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
    let Some(error) = error else { return ChangelogError::Failed(source) };
    let violation = match error.kind() {
        ErrorKind::UniqueViolation => Violation::Unique,
        ErrorKind::ForeignKeyViolation => Violation::ForeignKey,
        ErrorKind::NotNullViolation => Violation::NotNull,
        ErrorKind::CheckViolation => Violation::Check,
        _ => {
            let code = error.code().unwrap_or_default();
            let said = format!("the database does not accept the statement or its values (code {code})");
            return ChangelogError::Failed(said.into());
        }
    };
    // MySQL has the key after the value, SQLite the column; PostgreSQL says it apart.
    let message = error.message();
    let key = message.rsplit_once("for key ").or(message.split_once("UNIQUE constraint failed: ")).map(|(_, key)| key);
    let constraint = error.constraint().or(key).map(|name| name.trim_matches('\'').to_owned());
    ChangelogError::Constraint { violation, constraint }
}

impl From<Failed> for ChangelogError {
    fn from(Failed { kind, source }: Failed) -> Self {
        match kind {
            Kind::Conflict | Kind::Held => Self::Conflict(source),
            Kind::Unavailable => Self::Unavailable(source),
            Kind::Schema => Self::Schema(source),
            // The server's text names the user.
            Kind::Login => Self::Failed("the database refused the login; check user, password and host".into()),
            Kind::Duplicate | Kind::Refused => Self::Failed(source),
        }
    }
}
