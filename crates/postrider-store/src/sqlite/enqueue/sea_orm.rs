//! `enqueue` for users of SeaORM, whose SQLite connections are sqlx's.

use postrider_core::message::{Enqueued, NewRow};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, Statement};
use uuid::Uuid;

use super::{Driver, Value};
use crate::enqueue::sea_orm::sqlx_error;
use crate::enqueue::{EnqueueError, Outbox};
use crate::sql::Sql;
use crate::sqlite::error::{code, for_producer};

/// Writes rows in a transaction on SQLite.
pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    outbox: &Outbox,
    rows: &[NewRow],
) -> Result<Vec<Enqueued>, EnqueueError> {
    super::insert(SeaOrm(transaction), outbox, rows).await
}

struct SeaOrm<'a>(&'a DatabaseTransaction);

impl SeaOrm<'_> {
    async fn query(&self, sql: &Sql, values: Vec<sea_orm::Value>) -> Result<Vec<QueryResult>, EnqueueError> {
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, &**sql, values);
        self.0.query_all_raw(statement).await.map_err(failed)
    }
}

fn value(value: Value<'_>) -> sea_orm::Value {
    match value {
        Value::Null => None::<i64>.into(),
        Value::Integer(number) => number.into(),
        Value::Text(text) => text.into(),
        Value::Owned(text) => text.into(),
        Value::Bytes(bytes) => bytes.to_vec().into(),
        Value::Id(id) => id.hyphenated().to_string().into(),
    }
}

fn id(row: &QueryResult, at: usize) -> Result<Uuid, EnqueueError> {
    let text: String = row.try_get_by_index(at).map_err(failed)?;
    Uuid::parse_str(&text).map_err(|error| for_producer(None, error))
}

impl Driver for SeaOrm<'_> {
    async fn insert(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<Vec<Uuid>, EnqueueError> {
        let rows = self.query(sql, values.into_iter().map(value).collect()).await?;
        rows.iter().map(|row| id(row, 0)).collect()
    }

    async fn find(&mut self, sql: &Sql, keys: String) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let rows = self.query(sql, vec![keys.into()]).await?;
        rows.iter().map(|row| Ok((row.try_get_by_index(0).map_err(failed)?, id(row, 1)?))).collect()
    }
}

fn failed(error: DbErr) -> EnqueueError {
    let code = sqlx_error(&error).and_then(code);
    for_producer(code, error)
}
