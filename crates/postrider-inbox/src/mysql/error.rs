//! What kind of failure an error of MySQL is.

use postrider_store::mysql::{is_lock_timeout, is_login, kind_of, number};

use crate::sql::Kind;

const DUPLICATE_KEY: u16 = 1062;

pub(super) fn kind(error: &sqlx::Error) -> Kind {
    match number(error) {
        None => Kind::without_code(error),
        Some(DUPLICATE_KEY) => Kind::Duplicate,
        Some(number) if is_lock_timeout(number) => Kind::Held,
        Some(number) if is_login(number) => Kind::Login,
        Some(number) => kind_of(number).into(),
    }
}
