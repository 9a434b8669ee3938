//! What kind of failure a database error is. MySQL's own numbers say more than its SQLSTATEs.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use crate::enqueue::{DriverError, EnqueueError};

/// After these the same transaction may succeed: deadlock, lock time-out, a row or table that changed after the snapshot,
/// too many locks, a prepared statement that must be prepared again.
pub(super) fn is_conflict(number: u16) -> bool {
    matches!(number, 1213 | 1205 | 1020 | 1412 | 1206 | 1615)
}

/// Whether somebody else had a row locked for too long. Undoes the statement only, not its transaction.
pub fn is_lock_timeout(number: u16) -> bool {
    number == 1205
}

/// Access denied: by name, to a database, without a password, by a plugin that is not there or another protocol.
pub fn is_login(number: u16) -> bool {
    matches!(number, 1044 | 1045 | 1275 | 1524 | 1698)
}

/// Sorts a driver's error for a producer.
pub(super) fn for_producer(number: Option<u16>, source: impl Into<DriverError>) -> EnqueueError {
    match number {
        Some(number) if is_conflict(number) => EnqueueError::Conflict(source.into()),
        _ => EnqueueError::Database(source.into()),
    }
}

/// The number of an sqlx error, if the database sent one.
pub fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether a refusal came from a server that works: not one that shuts down, or became a read-only replica.
pub(super) fn is_from_healthy_server(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| kind_of(number) != StoreErrorKind::Unavailable)
}

/// Sorts an sqlx error for the relay; `verb` says what was tried.
pub(super) fn for_relay(verb: &'static str, error: sqlx::Error) -> StoreError {
    let number = number(&error);
    let kind = match (&error, number) {
        (_, Some(number)) => kind_of(number),
        (sqlx::Error::Configuration(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_), _) => {
            StoreErrorKind::Refused
        }
        _ => StoreErrorKind::Unavailable,
    };
    let advice = match (kind, number) {
        (_, Some(1665)) => {
            "the server logs statements, not rows, which does not go with READ COMMITTED: set binlog_format to ROW or MIXED"
        }
        (_, Some(number)) if is_login(number) => "the database refused the login; check user, password and host",
        (StoreErrorKind::Unavailable, _) => "the database cannot be reached or written; it is tried again",
        (StoreErrorKind::Conflict, _) => "the database could not serialise the transaction; it is tried again",
        (StoreErrorKind::Schema, _) => "the outbox's table is missing or differs; run the migrations",
        _ => "the database refused the statement; see the error that follows",
    };
    let failed = StoreError::new(kind, format!("{verb} failed: {advice}"));
    match number {
        // The server's text names the user.
        Some(number) if is_login(number) => failed,
        _ => failed.with_source(error),
    }
}

/// What kind of failure a number is.
pub fn kind_of(number: u16) -> StoreErrorKind {
    match number {
        _ if is_conflict(number) => StoreErrorKind::Conflict,
        // No such database, table, column, index or procedure.
        1049 | 1051 | 1054 | 1146 | 1176 | 1305 => StoreErrorKind::Schema,
        // Too many connections, statements or other resources, out of memory, shutting down, killed, read-only, disk
        // full, in recovery.
        1040 | 1041 | 1203 | 1226 | 1461 | 1037 | 1038 | 1053 | 1077 | 1079 | 1317 | 1927 | 1290 | 1836 | 3100
        | 1021 | 1114 | 1129 | 1047 | 1792 | 3168 => StoreErrorKind::Unavailable,
        // The network between, a session that idled or a statement that ran for too long, a commit or an engine that
        // failed.
        1158..=1161 | 4031 | 1969 | 3024 | 1180 | 1030 => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_has_its_policy() {
        for (number, kind) in [
            (1213, StoreErrorKind::Conflict),
            (1205, StoreErrorKind::Conflict),
            (1020, StoreErrorKind::Conflict),
            (1412, StoreErrorKind::Conflict),
            (1206, StoreErrorKind::Conflict),
            (1615, StoreErrorKind::Conflict),
            (1053, StoreErrorKind::Unavailable),
            (1226, StoreErrorKind::Unavailable),
            (1461, StoreErrorKind::Unavailable),
            (1158, StoreErrorKind::Unavailable),
            (1161, StoreErrorKind::Unavailable),
            (4031, StoreErrorKind::Unavailable),
            (1969, StoreErrorKind::Unavailable),
            (3024, StoreErrorKind::Unavailable),
            (1180, StoreErrorKind::Unavailable),
            (1030, StoreErrorKind::Unavailable),
            (1040, StoreErrorKind::Unavailable),
            (1290, StoreErrorKind::Unavailable),
            (1836, StoreErrorKind::Unavailable),
            (1146, StoreErrorKind::Schema),
            (1054, StoreErrorKind::Schema),
            (1142, StoreErrorKind::Refused),
            (1366, StoreErrorKind::Refused),
        ] {
            assert_eq!(kind_of(number), kind, "{number}");
        }
    }
}
