//! What kind of failure an error of PostgreSQL is.

use postrider_store::postgres::{is_login, kind_of, sqlstate};

use crate::sql::Kind;

pub(super) fn kind(error: &sqlx::Error) -> Kind {
    sqlstate(error).map_or_else(|| Kind::without_code(error), |state| of_state(&state))
}

pub(super) fn of_state(state: &str) -> Kind {
    if is_login(state) { Kind::Login } else { kind_of(state).into() }
}
