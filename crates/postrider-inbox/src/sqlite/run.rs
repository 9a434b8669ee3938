//! Running statements with sqlx.

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection};

use super::{error, migrate, statements};
use crate::InboxError;
use crate::sql::{
    Dialect, Entered, Failed, InboxTables, Kind, Numbers, OfEach, Statement, Statements, Templates, Value,
};

impl Dialect for Sqlite {
    const TEMPLATES: Templates = statements::TEMPLATES;
    /// A transaction that reads before it writes could not write any more once somebody else has.
    const BEGIN: Option<&'static str> = Some("begin immediate");
    /// sqlx would otherwise hand the connection out as one that is still in a transaction.
    const REOPEN: Option<&'static str> = Some("begin");
    /// In WAL, a crash may leave the commit of one file without that of another.
    const ONLY_SCHEMA: Option<&'static str> = Some("main");
    const LOOK_FIRST: bool = true;

    async fn ask(
        connection: &mut SqliteConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Numbers>, Failed> {
        let rows = query(statement, values).fetch_all(connection).await.map_err(Self::failed)?;
        rows.iter().map(|row| numbers(row).map_err(Self::failed)).collect()
    }

    async fn change(
        connection: &mut SqliteConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failed> {
        let done = query(statement, values).execute(connection).await.map_err(Self::failed)?;
        Ok(done.rows_affected())
    }

    fn statements(of_each: &OfEach) -> &Statements {
        &of_each.sqlite
    }

    fn entered(rows: &[Numbers]) -> Entered {
        match rows {
            [] => Entered::Refused,
            _ => Entered::First,
        }
    }

    async fn create(connection: &mut SqliteConnection, tables: &InboxTables) -> Result<(), InboxError> {
        migrate::run(connection, tables).await
    }

    fn kind(error: &sqlx::Error) -> Kind {
        error::kind(error)
    }
}

fn query<'q>(statement: &Statement, values: &[Value<'q>]) -> Query<'q, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.sql.clone())).persistent(statement.persistent);
    values.iter().fold(query, |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Id(id) => query.bind(id.hyphenated()),
        Value::Number(number) => query.bind(number),
    })
}

fn numbers(row: &SqliteRow) -> Result<Numbers, sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
