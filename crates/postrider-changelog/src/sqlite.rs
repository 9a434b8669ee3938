//! The changelog in an SQLite file, SQLite 3.35 and newer.
//!
//! SQLite has one writer at a time anyway. A unit of work begins with `begin immediate`; a transaction of the caller's own that
//! has read before it reserves may not be able to write any more, and gets
//! [`ChangelogError::Conflict`](crate::ChangelogError::Conflict). Times in the application's tables are milliseconds since 1970.

use postrider_store::Names;
use postrider_store::sqlite::{code, sort, statements};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, SqliteConnection, TypeInfo as _, ValueRef as _};

use crate::TransactionVersion;
use crate::schema::ColumnKind;
use crate::sql::{Argument, Dialect, Failed, Kind, Statements, Templates, run_with_sqlx, templates};

/// A unique key or a primary key is there already.
const DUPLICATE: [i32; 2] = [2067, 1555];

impl Dialect for Sqlite {
    const TEMPLATES: Templates = templates!("sqlite", Some(include_str!("../sql/sqlite/reserved.sql")));
    const QUOTE: char = '"';
    const RETURNING: bool = true;
    const LOCK: &'static str = "";
    const NOT_FINITE: bool = false;
    const BEGIN: Option<&'static str> = Some("begin immediate");

    fn render(names: &Names, template: &str) -> String {
        statements::render(names, template, &[])
    }

    fn placeholder(number: usize) -> String {
        format!("?{number}")
    }

    fn written(_: ColumnKind, placeholder: &str) -> String {
        placeholder.into()
    }

    fn read(kind: ColumnKind, column: &str) -> String {
        match kind {
            // SQLite's own text of a number is not exact.
            ColumnKind::Float => column.into(),
            // It makes something of null.
            ColumnKind::Binary => format!("case when {column} is not null then lower(hex({column})) end"),
            _ => format!("cast({column} as text)"),
        }
    }

    /// Once as the column compares, which may not care for case, so that its index is used, and once for what it is.
    fn identified(_: ColumnKind, column: &str, mut bind: impl FnMut() -> String) -> String {
        let id = bind();
        format!("{column} = {id} and {column} = {id} collate binary")
    }

    fn one_of(column: &str, placeholder: &str) -> String {
        format!("{column} in (select value from json_each({placeholder}))")
    }

    run_with_sqlx!(SqliteConnection, cell);

    async fn reserve(
        connection: &mut SqliteConnection,
        statements: &Statements,
    ) -> Result<(Option<TransactionVersion>, i64), Failed> {
        let rows = Self::fetch(connection, &statements.query(&statements.reserve, [])).await?;
        let (newest, now) = crate::sql::reserved(&rows)?;
        let next = TransactionVersion::new(newest).and_then(|newest| newest.checked_add(1));
        if let (Some(next), Some(write)) = (next, &statements.reserved) {
            let arguments = [Argument::text(next.to_string())];
            Self::execute(connection, &statements.query(write, arguments)).await?;
        }
        Ok((next, now))
    }

    fn kind(error: &sqlx::Error) -> Kind {
        let message = error.as_database_error().map(|error| error.message()).unwrap_or_default();
        match code(error) {
            None => Kind::without_code(error),
            Some(code) if DUPLICATE.contains(&code) => Kind::Duplicate,
            Some(code) => sort(code, message).0.into(),
        }
    }
}

/// A column as text, whatever it holds: a column for floating-point numbers may hold whole ones as well.
fn cell(row: &SqliteRow, at: usize) -> Result<Option<String>, sqlx::Error> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(None);
    }
    match raw.type_info().name() {
        "REAL" => row.try_get::<f64, _>(at).map(|number| Some(number.to_string())),
        "INTEGER" => row.try_get::<i64, _>(at).map(|number| Some(number.to_string())),
        _ => row.try_get(at),
    }
}
