//! What kind of failure an error of SQLite is.

use postrider_store::sqlite::{code, is_conflict, sort};

use crate::sql::Kind;

/// Somebody has written since this transaction first read, and it cannot write any more.
const BUSY_SNAPSHOT: i32 = 517;

pub(super) fn kind(error: &sqlx::Error) -> Kind {
    let message = error.as_database_error().map(|error| error.message()).unwrap_or_default();
    match code(error) {
        None => Kind::without_code(error),
        Some(BUSY_SNAPSHOT) => Kind::Conflict,
        Some(code) if is_conflict(code) => Kind::Held,
        Some(code) => sort(code, message).0.into(),
    }
}
