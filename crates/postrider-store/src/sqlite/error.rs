//! What kind of failure an error of SQLite is.

use postrider_core::store::{StoreError, StoreErrorKind};

use crate::enqueue::{DriverError, EnqueueError};

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READ_ONLY: i32 = 8;
/// The file at this path is no longer the one that was opened.
const MOVED: i32 = 1032;
const FULL: i32 = 13;

/// SQLite's result code, without what extended codes add to it.
fn primary(code: i32) -> i32 {
    code & 0xFF
}

/// Whether somebody else is writing, so that the same transaction may succeed later.
pub fn is_conflict(code: i32) -> bool {
    matches!(primary(code), BUSY | LOCKED)
}

/// Sorts a driver's error for a producer.
pub(super) fn for_producer(code: Option<i32>, source: impl Into<DriverError>) -> EnqueueError {
    match code {
        Some(code) if is_conflict(code) => EnqueueError::Conflict(source.into()),
        _ => EnqueueError::Database(source.into()),
    }
}

/// The extended result code of an sqlx error, if SQLite answered one.
pub fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Sorts an sqlx error for the relay; `verb` says what was tried.
pub(super) fn for_relay(verb: &'static str, error: sqlx::Error) -> StoreError {
    let message = error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default();
    let (kind, advice) = match (&error, code(&error)) {
        (_, Some(code)) => sort(code, &message),
        (sqlx::Error::Configuration(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_), _) => {
            (StoreErrorKind::Refused, REFUSED)
        }
        _ => (StoreErrorKind::Unavailable, "no connection to the database file; it is tried again"),
    };
    StoreError::new(kind, format!("{verb} failed: {advice}")).with_source(error)
}

const REFUSED: &str = "the database refused the statement; see the error that follows";

const LOCK_IS_HELD: &str =
    "another transaction holds the write lock for too long; it is tried again, look for transactions that stay open";

/// The write lock could not be had in time.
pub(super) fn lock_is_held(verb: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Conflict, format!("{verb} failed: {LOCK_IS_HELD}"))
}

/// What kind of failure a result code is, and what to do.
pub fn sort(code: i32, message: &str) -> (StoreErrorKind, &'static str) {
    if code == MOVED {
        let advice = "the database file was moved, replaced or deleted while it was open; put it back with its -wal file, or restart every process that has it open";
        return (StoreErrorKind::Refused, advice);
    }
    match primary(code) {
        code if is_conflict(code) => (StoreErrorKind::Conflict, LOCK_IS_HELD),
        FULL => (StoreErrorKind::Unavailable, "the disk is full; free some space, it is tried again"),
        READ_ONLY => (
            StoreErrorKind::Refused,
            "the database file is read-only; give the process the right to write the file and its directory, and open it without read_only",
        ),
        // out of memory, interrupted, input or output error, cannot open, locking protocol
        7 | 9 | 10 | 14 | 15 => {
            (StoreErrorKind::Unavailable, "the database file cannot be read or written now; it is tried again")
        }
        11 | 26 => (
            StoreErrorKind::Refused,
            "the file is damaged or no SQLite database; run `pragma integrity_check` on it, and restore it from a backup",
        ),
        1 if message.contains("no such table") || message.contains("no such column") => {
            (StoreErrorKind::Schema, "the outbox's table is missing or differs; run the migrations")
        }
        _ => (StoreErrorKind::Refused, REFUSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_has_its_policy() {
        for (code, message, kind) in [
            (5, "database is locked", StoreErrorKind::Conflict),
            (517, "database is locked", StoreErrorKind::Conflict),
            (261, "database is locked", StoreErrorKind::Conflict),
            (6, "database table is locked", StoreErrorKind::Conflict),
            (262, "database schema is locked", StoreErrorKind::Conflict),
            (13, "database or disk is full", StoreErrorKind::Unavailable),
            (778, "disk I/O error", StoreErrorKind::Unavailable),
            (14, "unable to open database file", StoreErrorKind::Unavailable),
            (1, "no such table: outbox_messages", StoreErrorKind::Schema),
            (1, "near \"x\": syntax error", StoreErrorKind::Refused),
            (1032, "attempt to write a readonly database", StoreErrorKind::Refused),
            (11, "database disk image is malformed", StoreErrorKind::Refused),
        ] {
            assert_eq!(sort(code, message).0, kind, "{code} {message}");
        }
        assert!(sort(8, "").1.contains("read-only"));
        assert!(sort(1032, "").1.contains("moved"));
    }

    #[test]
    fn a_producer_may_try_again_when_another_one_writes() {
        assert!(for_producer(Some(517), "busy").is_retryable());
        assert!(!for_producer(Some(13), "full").is_retryable());
        assert!(!for_producer(None, "unknown").is_retryable());
    }
}
