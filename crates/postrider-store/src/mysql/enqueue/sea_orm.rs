//! `enqueue` for users of SeaORM, whose MySQL connections are sqlx's.

use postrider_core::message::{Enqueued, NewRow};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, Statement};
use uuid::Uuid;

use super::{Driver, Holder, Value};
use crate::enqueue::sea_orm::sqlx_error;
use crate::enqueue::{EnqueueError, Outbox};
use crate::mysql::error::{for_producer, number};
use crate::sql::Sql;

/// Writes rows in a transaction on MySQL.
pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    outbox: &Outbox,
    rows: &[NewRow],
) -> Result<Vec<Enqueued>, EnqueueError> {
    super::insert(SeaOrm(transaction), outbox, rows).await
}

struct SeaOrm<'a>(&'a DatabaseTransaction);

impl Driver for SeaOrm<'_> {
    async fn execute(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<(), EnqueueError> {
        self.0.execute_raw(statement(sql, values)).await.map(drop).map_err(failed)
    }

    async fn find(&mut self, sql: &Sql, values: Vec<Value<'_>>) -> Result<Vec<Holder>, EnqueueError> {
        let rows = self.0.query_all_raw(statement(sql, values)).await.map_err(failed)?;
        rows.iter().map(|row| holder(row).map_err(failed)).collect()
    }
}

fn statement(sql: &Sql, values: Vec<Value<'_>>) -> Statement {
    let values = values.into_iter().map(|value| match value {
        Value::Text(text) => sea_orm::Value::from(text),
        Value::Uuid(uuid) => uuid.map(|uuid| uuid.to_string()).into(),
        Value::Bytes(bytes) => bytes.map(<[u8]>::to_vec).into(),
        Value::Owned(bytes) => bytes.into(),
        Value::Number(number) => number.into(),
    });
    Statement::from_sql_and_values(DbBackend::MySql, &**sql, values)
}

fn holder(row: &QueryResult) -> Result<Holder, DbErr> {
    let id: String = row.try_get_by_index(0)?;
    let id = Uuid::parse_str(&id).map_err(|error| DbErr::Type(error.to_string()))?;
    let (namespace, topic) = (row.try_get_by_index(1)?, row.try_get_by_index(2)?);
    Ok(Holder { id, namespace, topic, dedupe_key: row.try_get_by_index(3)? })
}

fn failed(error: DbErr) -> EnqueueError {
    let number = sqlx_error(&error).and_then(number);
    for_producer(number, error)
}
