//! `enqueue` for users of sqlx.

use postrider_core::message::{Enqueued, NewRow};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row, Transaction};

use super::{Driver, Holder, Value, insert};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};
use crate::mysql::error::{for_producer, number};
use crate::mysql::types::{Bound, uuid};
use crate::sql::Sql;

impl CallerTransaction for &mut Transaction<'_, MySql> {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        insert(Sqlx(self), outbox, &rows).await
    }
}

struct Sqlx<'a>(&'a mut MySqlConnection);

impl Driver for Sqlx<'_> {
    async fn execute(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<(), EnqueueError> {
        let arguments = arguments(values).map_err(failed)?;
        sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).execute(&mut *self.0).await.map_err(failed)?;
        Ok(())
    }

    async fn find(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<Vec<Holder>, EnqueueError> {
        let arguments = arguments(values).map_err(failed)?;
        let rows = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(&mut *self.0).await;
        rows.map_err(failed)?.iter().map(|row| holder(row).map_err(failed)).collect()
    }
}

fn arguments(values: Vec<Value<'_>>) -> Result<MySqlArguments, sqlx::Error> {
    let mut bound = Bound::default();
    for value in values {
        match value {
            Value::Text(text) => bound.add(text.to_owned()),
            Value::Uuid(uuid) => bound.add(uuid.map(uuid::Uuid::hyphenated)),
            Value::Bytes(bytes) => bound.add(bytes.map(<[u8]>::to_vec)),
            Value::Owned(bytes) => bound.add(bytes),
            Value::Number(number) => bound.add(number),
        };
    }
    bound.finish()
}

fn holder(row: &MySqlRow) -> Result<Holder, sqlx::Error> {
    let (namespace, topic, dedupe_key) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    Ok(Holder { id: uuid(row, 0)?, namespace, topic, dedupe_key })
}

fn failed(error: sqlx::Error) -> EnqueueError {
    for_producer(number(&error), error)
}
