//! Running statements with sqlx.

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row};

use super::{error, migrate, statements};
use crate::InboxError;
use crate::sql::{Dialect, Entered, Failed, InboxTables, Kind, Numbers, OfEach, Statement, Statements, Templates, Value};

impl Dialect for MySql {
    const TEMPLATES: Templates = statements::TEMPLATES;

    async fn ask(
        connection: &mut MySqlConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Numbers>, Failed> {
        let rows = query(statement, values).fetch_all(connection).await.map_err(Self::failed)?;
        rows.iter().map(|row| numbers(row).map_err(Self::failed)).collect()
    }

    async fn change(
        connection: &mut MySqlConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failed> {
        let done = query(statement, values).execute(connection).await.map_err(Self::failed)?;
        Ok(done.rows_affected())
    }

    fn statements(of_each: &OfEach) -> &Statements {
        &of_each.mysql
    }

    /// A duplicate is an error.
    fn entered(_: &[Numbers]) -> Entered {
        Entered::First
    }

    async fn create(connection: &mut MySqlConnection, tables: &InboxTables) -> Result<(), InboxError> {
        migrate::run(connection, tables).await
    }

    fn kind(error: &sqlx::Error) -> Kind {
        error::kind(error)
    }
}

fn query<'q>(statement: &Statement, values: &[Value<'q>]) -> Query<'q, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.sql.clone())).persistent(statement.persistent);
    values.iter().fold(query, |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Id(id) => query.bind(id.hyphenated()),
        Value::Number(number) => query.bind(number),
    })
}

fn numbers(row: &MySqlRow) -> Result<Numbers, sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
