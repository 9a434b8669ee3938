//! The changelog on PostgreSQL 13 and newer.
//!
//! The counter is one row. A writer updates it with its first statement and so holds its lock to the end; the next writer gets
//! the lock after the commit is visible, so whoever sees an entry sees all those before it. A unit of work runs under READ
//! COMMITTED. Under REPEATABLE READ and SERIALIZABLE, in a transaction of the caller's own, a writer that had to wait has a
//! snapshot from before and gets a serialisation failure, [`ChangelogError::Conflict`](crate::ChangelogError::Conflict).

use postrider_store::Names;
use postrider_store::postgres::{is_login, kind_of, sqlstate, statements};
use sqlx::{PgConnection, Postgres};

use crate::TransactionVersion;
use crate::schema::ColumnKind;
use crate::sql::{Dialect, Failed, Kind, Statements, Templates, run_with_sqlx, templates};

const UNIQUE_VIOLATION: &str = "23505";

impl Dialect for Postgres {
    const TEMPLATES: Templates = templates!("postgres", None);
    const QUOTE: char = '"';
    const RETURNING: bool = true;
    const LOCK: &'static str = " for no key update";
    const NOT_FINITE: bool = true;
    const BEGIN: Option<&'static str> = Some("begin isolation level read committed");

    fn render(names: &Names, template: &str) -> String {
        statements::render(names, template, &[])
    }

    fn placeholder(number: usize) -> String {
        format!("${number}")
    }

    fn written(kind: ColumnKind, placeholder: &str) -> String {
        match kind {
            ColumnKind::Text => format!("{placeholder}::text"),
            ColumnKind::Uuid => format!("{placeholder}::text::uuid"),
            ColumnKind::Integer | ColumnKind::BigInteger | ColumnKind::Reference(_) => {
                format!("{placeholder}::bigint")
            }
            ColumnKind::Float => format!("{placeholder}::float8"),
            ColumnKind::Decimal => format!("{placeholder}::text::numeric"),
            ColumnKind::Boolean => format!("{placeholder}::boolean"),
            // Days and the rest apart: an interval is multiplied as a floating-point number, which would lose milliseconds.
            ColumnKind::Timestamp => format!(
                "(timestamp '1970-01-01' + {placeholder}::bigint / 86400000 * interval '1 day' + {placeholder}::bigint % 86400000 * interval '1 millisecond') at time zone 'UTC'"
            ),
            ColumnKind::Json => format!("{placeholder}::text::json"),
            ColumnKind::Binary => format!("{placeholder}::bytea"),
        }
    }

    fn read(kind: ColumnKind, column: &str) -> String {
        match kind {
            ColumnKind::Boolean => format!("{column}::int::text"),
            ColumnKind::Float => format!("{column}::float8::text"),
            // PostgreSQL 13 answers a floating-point number, which is exact to the microsecond only.
            ColumnKind::Timestamp => {
                format!("floor(round(extract(epoch from {column}) * 1000000)::numeric / 1000)::bigint::text")
            }
            ColumnKind::Binary => format!("encode({column}, 'hex')"),
            _ => format!("{column}::text"),
        }
    }

    /// Once as the column compares, which may not care for case, so that its index is used, and once for what it is.
    fn identified(kind: ColumnKind, column: &str, mut bind: impl FnMut() -> String) -> String {
        let id = bind();
        let same = format!("{column} = {}", Self::written(kind, &id));
        match kind {
            ColumnKind::Text => format!("{same} and {column}::text collate \"C\" = {id}::text"),
            _ => same,
        }
    }

    fn one_of(column: &str, placeholder: &str) -> String {
        format!("{column} in (select value::bigint from json_array_elements_text({placeholder}::text::json))")
    }

    run_with_sqlx!(PgConnection, sqlx::Row::try_get);

    async fn reserve(
        connection: &mut PgConnection,
        statements: &Statements,
    ) -> Result<(Option<TransactionVersion>, i64), Failed> {
        let rows = Self::fetch(connection, &statements.query(&statements.reserve, [])).await?;
        let (version, now) = crate::sql::reserved(&rows)?;
        Ok((TransactionVersion::new(version), now))
    }

    fn kind(error: &sqlx::Error) -> Kind {
        match sqlstate(error) {
            None => Kind::without_code(error),
            Some(state) if state == UNIQUE_VIOLATION => Kind::Duplicate,
            Some(state) if is_login(&state) => Kind::Login,
            Some(state) => kind_of(&state).into(),
        }
    }
}
