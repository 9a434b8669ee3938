//! What kind of failure a database error is.

use postrider_core::store::{StoreError, StoreErrorKind};

use crate::enqueue::{DriverError, EnqueueError};

/// SQLSTATEs after which the same transaction may succeed: serialisation failure, deadlock, lock time-out.
pub(super) fn is_conflict(sqlstate: &str) -> bool {
    matches!(sqlstate, "40001" | "40P01" | "55P03")
}

/// Class 28: the login was refused.
pub fn is_login(sqlstate: &str) -> bool {
    sqlstate.starts_with("28")
}

/// Protocol violation; what a pooler answers to a start-up parameter that it does not know.
pub(crate) const PROTOCOL: &str = "08P01";

/// Sorts a driver's error for a producer.
pub(super) fn for_producer(sqlstate: Option<&str>, source: impl Into<DriverError>) -> EnqueueError {
    match sqlstate {
        Some(state) if is_conflict(state) => EnqueueError::Conflict(source.into()),
        _ => EnqueueError::Database(source.into()),
    }
}

/// The SQLSTATE of an sqlx error, if the database sent one.
pub fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

/// Whether a refusal came from a server that works: not one that shuts down, or became a read-only standby.
pub(super) fn is_from_healthy_server(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|state| kind_of(&state) != StoreErrorKind::Unavailable)
}

/// Sorts an sqlx error for the relay; `verb` says what was tried.
pub(super) fn for_relay(verb: &'static str, error: sqlx::Error) -> StoreError {
    let state = sqlstate(&error);
    let kind = match (&error, state.as_deref()) {
        (_, Some(state)) => kind_of(state),
        (sqlx::Error::Configuration(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_), _) => {
            StoreErrorKind::Refused
        }
        _ => StoreErrorKind::Unavailable,
    };
    let advice = match (kind, state.as_deref()) {
        (_, Some("26000")) => {
            "a transaction pooler seems to be in between: connect with statement_cache_capacity(0) and open the store with behind_pooler(true)"
        }
        (_, Some(PROTOCOL)) => {
            "a pooler seems to be in between that does not know a start-up parameter: connect with extra_float_digits(None) and without options, or name it in ignore_startup_parameters"
        }
        (_, Some(state)) if is_login(state) => "the database refused the login; check user, password and pg_hba.conf",
        (StoreErrorKind::Unavailable, _) => "the database cannot be reached; it is tried again",
        (StoreErrorKind::Conflict, _) => "the database could not serialise the statement; it is tried again",
        (StoreErrorKind::Schema, _) => "the outbox's table is missing or differs; run the migrations",
        _ => "the database refused the statement; see the error that follows",
    };
    let failed = StoreError::new(kind, format!("{verb} failed: {advice}"));
    match state {
        // The server's text names the user.
        Some(state) if is_login(&state) => failed,
        _ => failed.with_source(error),
    }
}

/// Classes 08, 53, 57P and 58 are about the server, not about us.
pub fn kind_of(state: &str) -> StoreErrorKind {
    match state {
        _ if is_conflict(state) => StoreErrorKind::Conflict,
        "42P01" | "42703" | "42883" | "3F000" => StoreErrorKind::Schema,
        "25006" | "26000" | "55000" => StoreErrorKind::Unavailable,
        _ if ["08", "53", "57", "58"].iter().any(|class| state.starts_with(class)) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_has_its_policy() {
        for (state, kind) in [
            ("40001", StoreErrorKind::Conflict),
            ("40P01", StoreErrorKind::Conflict),
            ("57P01", StoreErrorKind::Unavailable),
            ("53300", StoreErrorKind::Unavailable),
            ("08006", StoreErrorKind::Unavailable),
            ("25006", StoreErrorKind::Unavailable),
            ("42P01", StoreErrorKind::Schema),
            ("42501", StoreErrorKind::Refused),
            ("22P02", StoreErrorKind::Refused),
        ] {
            assert_eq!(kind_of(state), kind, "{state}");
        }
    }
}
