//! Running statements with sqlx.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row};

use super::{error, migrate, statements};
use crate::InboxError;
use crate::sql::{
    Dialect, Entered, Failed, InboxTables, Kind, Numbers, OfEach, Statement, Statements, Templates, Value,
};

impl Dialect for Postgres {
    const TEMPLATES: Templates = statements::TEMPLATES;

    async fn ask(
        connection: &mut PgConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Numbers>, Failed> {
        let rows = query(statement, values).fetch_all(connection).await.map_err(Self::failed)?;
        rows.iter().map(|row| numbers(row).map_err(Self::failed)).collect()
    }

    async fn change(connection: &mut PgConnection, statement: &Statement, values: &[Value<'_>]) -> Result<u64, Failed> {
        let done = query(statement, values).execute(connection).await.map_err(Self::failed)?;
        Ok(done.rows_affected())
    }

    fn statements(of_each: &OfEach) -> &Statements {
        &of_each.postgres
    }

    fn entered(rows: &[Numbers]) -> Entered {
        match rows {
            [(1, _)] => Entered::First,
            [(2, _)] => Entered::AlreadyProcessed,
            [(4, _)] => Entered::Refused,
            _ => Entered::InProgress,
        }
    }

    async fn create(connection: &mut PgConnection, tables: &InboxTables) -> Result<(), InboxError> {
        migrate::run(connection, tables).await
    }

    fn kind(error: &sqlx::Error) -> Kind {
        error::kind(error)
    }
}

fn query<'q>(statement: &Statement, values: &[Value<'q>]) -> Query<'q, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.sql.clone())).persistent(statement.persistent);
    values.iter().fold(query, |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Id(id) => query.bind(id),
        Value::Number(number) => query.bind(number),
    })
}

fn numbers(row: &PgRow) -> Result<Numbers, sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
