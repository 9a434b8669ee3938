//! `enqueue` for users of sqlx.

use postrider_core::message::{Enqueued, NewRow};
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

use super::{Driver, Value, insert};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};
use crate::sql::Sql;
use crate::sqlite::error::{code, for_producer};
use crate::sqlite::types::{Bound, read_id};

impl CallerTransaction for &mut Transaction<'_, Sqlite> {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        insert(Sqlx(self), outbox, &rows).await
    }
}

struct Sqlx<'a>(&'a mut SqliteConnection);

fn arguments(values: Vec<Value<'_>>) -> Result<SqliteArguments, sqlx::Error> {
    let mut bound = Bound::default();
    for value in values {
        match value {
            Value::Null => bound.add(None::<i64>),
            Value::Integer(number) => bound.add(number),
            Value::Text(text) => bound.add(text.to_owned()),
            Value::Owned(text) => bound.add(text),
            Value::Bytes(bytes) => bound.add(bytes.to_vec()),
            Value::Id(id) => bound.id(id),
        };
    }
    bound.finish()
}

impl Driver for Sqlx<'_> {
    async fn insert(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<Vec<Uuid>, EnqueueError> {
        let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments(values).map_err(failed)?);
        let rows = query.fetch_all(&mut *self.0).await.map_err(failed)?;
        rows.iter().map(|row| read_id(row, 0).map_err(failed)).collect()
    }

    async fn find(&mut self, sql: &Sql, keys: String) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let query = sqlx::query(AssertSqlSafe(sql.clone())).bind(keys);
        let rows = query.fetch_all(&mut *self.0).await.map_err(failed)?;
        rows.iter().map(|row| Ok((row.try_get(0)?, read_id(row, 1)?))).collect::<Result<_, _>>().map_err(failed)
    }
}

fn failed(error: sqlx::Error) -> EnqueueError {
    for_producer(code(&error), error)
}
