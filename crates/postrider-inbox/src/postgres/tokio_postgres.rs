//! `enter` for users of tokio-postgres, and of deadpool or bb8 on top of it.
//!
//! Each statement goes out with its parameters' types in one round trip, and is not prepared by name.

use sqlx::Postgres;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Transaction};

use super::error::of_state;
use crate::sql::{ConsumerTransaction, Driver, Failed, InboxTables, Kind, Numbers, Statement, Value, enter, leave};
use crate::{Delivery, Entry, InboxError};

impl ConsumerTransaction for &Transaction<'_> {
    async fn enter(self, tables: &InboxTables, delivery: &Delivery) -> Result<Entry<()>, InboxError> {
        enter(&mut TokioPostgres(self), tables, delivery).await
    }

    async fn leave(self, tables: &InboxTables, delivery: &Delivery) -> Result<(), InboxError> {
        leave(&mut TokioPostgres(self), tables, delivery).await
    }
}

struct TokioPostgres<'a>(&'a Transaction<'a>);

impl Driver for TokioPostgres<'_> {
    type Database = Postgres;

    async fn ask(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Vec<Numbers>, Failed> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = values.iter().map(parameter).collect();
        let rows = self.0.query_typed(&statement.sql, &parameters).await.map_err(failed)?;
        rows.iter().map(|row| numbers(row).map_err(failed)).collect()
    }
}

fn parameter<'a>(value: &'a Value<'_>) -> (&'a (dyn ToSql + Sync), Type) {
    match value {
        Value::Text(text) => (text, Type::TEXT),
        Value::Id(id) => (id, Type::UUID),
        Value::Number(number) => (number, Type::INT8),
    }
}

fn numbers(row: &Row) -> Result<Numbers, Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn failed(error: Error) -> Failed {
    let kind = error.code().map_or(Kind::Unavailable, |state| of_state(state.code()));
    Failed::new(kind, error)
}
