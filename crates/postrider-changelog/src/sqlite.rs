//! The changelog in an SQLite file, SQLite 3.35 and newer.
//!
//! SQLite has one writer at a time anyway. A unit of work begins with `begin immediate`; a transaction of the caller's own that
//! has read before it reserves may not be able to write any more, and gets
//! [`ChangelogError::Conflict`](crate::ChangelogError::Conflict). Times in the application's tables are milliseconds since 1970.

use postrider_store::Names;
use postrider_store::sqlite::{code, sort, statements};
use sqlx::query::Query as SqlxQuery;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Row as _, Sqlite, SqliteConnection};

use crate::TransactionVersion;
use crate::schema::ColumnKind;
use crate::sql::{Argument, Dialect, Failed, Kind, Query, Row, Statements, Templates, templates};

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
            ColumnKind::Float => format!("printf('%!.17g', {column})"),
            ColumnKind::Binary => format!("lower(hex({column}))"),
            _ => format!("cast({column} as text)"),
        }
    }

    fn one_of(column: &str, placeholder: &str) -> String {
        format!("{column} in (select value from json_each({placeholder}))")
    }

    async fn fetch(connection: &mut SqliteConnection, query: &Query) -> Result<Vec<Row>, Failed> {
        let rows = bound(query).fetch_all(connection).await.map_err(Self::failed)?;
        let read = |row: &sqlx::sqlite::SqliteRow| (0..row.len()).map(|at| row.try_get(at)).collect();
        rows.iter().map(read).collect::<Result<_, _>>().map_err(Self::failed)
    }

    async fn execute(connection: &mut SqliteConnection, query: &Query) -> Result<u64, Failed> {
        Ok(bound(query).execute(connection).await.map_err(Self::failed)?.rows_affected())
    }

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

fn bound(query: &Query) -> SqlxQuery<'_, Sqlite, SqliteArguments> {
    let statement = sqlx::query(AssertSqlSafe(query.sql.clone())).persistent(query.persistent);
    query.arguments.iter().fold(statement, |statement, argument| match argument {
        Argument::Text(text) => statement.bind(text.as_deref()),
        Argument::Whole(number) => statement.bind(*number),
        Argument::Float(number) => statement.bind(*number),
        Argument::Boolean(yes) => statement.bind(*yes),
        Argument::Bytes(bytes) => statement.bind(bytes.as_deref()),
    })
}
