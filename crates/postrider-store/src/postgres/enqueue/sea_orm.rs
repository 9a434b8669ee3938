//! `enqueue` for users of SeaORM, whose PostgreSQL connections are sqlx's.
//!
//! SeaORM's array values cannot hold a null (it panics on one), so columns that may be null travel as the text
//! form of an array, which the statement's own casts turn into the right type.

use postrider_core::message::{Enqueued, NewRow};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, Statement, Value};
use uuid::Uuid;

use super::{Columns, Driver, Keys};
use crate::enqueue::sea_orm::sqlx_error;
use crate::enqueue::{EnqueueError, Outbox};
use crate::postgres::error::{for_producer, sqlstate};
use crate::sql::Sql;

/// Writes rows in a transaction on PostgreSQL.
pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    outbox: &Outbox,
    rows: &[NewRow],
) -> Result<Vec<Enqueued>, EnqueueError> {
    super::insert(SeaOrm(transaction), outbox, rows).await
}

struct SeaOrm<'a>(&'a DatabaseTransaction);

impl SeaOrm<'_> {
    async fn query(
        &self,
        sql: &Sql,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<QueryResult>, EnqueueError> {
        self.0.query_all_raw(statement(sql, values)).await.map_err(failed)
    }
}

fn statement(sql: &Sql, values: impl IntoIterator<Item = Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, &**sql, values)
}

impl Driver for SeaOrm<'_> {
    async fn insert_one(&mut self, sql: &Sql, row: &NewRow) -> Result<bool, EnqueueError> {
        let values: [Value; 12] = [
            row.id.into(),
            row.namespace.as_ref().into(),
            row.topic.as_ref().into(),
            row.key.clone().into(),
            row.tenant_id.into(),
            row.dedupe_key.clone().into(),
            row.payload.as_str().into(),
            row.payload_bytes.clone().into(),
            row.headers.as_str().into(),
            row.deliver_at_micros.into(),
            row.delay_micros.into(),
            row.max_attempts.into(),
        ];
        let done = self.0.execute_raw(statement(sql, values)).await.map_err(failed)?;
        Ok(done.rows_affected() > 0)
    }

    async fn insert_all(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<u64, EnqueueError> {
        let done = self.0.execute_raw(statement(sql, arrays(columns))).await.map_err(failed)?;
        Ok(done.rows_affected())
    }

    async fn insert_many(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<Vec<Uuid>, EnqueueError> {
        let rows = self.query(sql, arrays(columns)).await?;
        rows.iter().map(|row| row.try_get_by_index(0).map_err(failed)).collect()
    }

    async fn find(&mut self, sql: &Sql, keys: Keys<'_>) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let values = [texts(&keys.namespaces), texts(&keys.topics), texts(&keys.dedupe_keys)];
        let rows = self.query(sql, values).await?;
        let pair = |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
        rows.iter().map(|row| pair(row).map_err(failed)).collect()
    }
}

fn arrays(columns: Columns<'_>) -> [Value; 12] {
    [
        columns.ids.into(),
        texts(&columns.namespaces),
        texts(&columns.topics),
        nullable(&columns.keys, |key| quoted(key)),
        nullable(&columns.tenants, Uuid::to_string),
        nullable(&columns.dedupe_keys, |key| quoted(key)),
        texts(&columns.payloads),
        nullable(&columns.payload_bytes, |bytes| hex(bytes)),
        texts(&columns.headers),
        nullable(&columns.deliver_at, i64::to_string),
        nullable(&columns.delays, i64::to_string),
        nullable(&columns.max_attempts, i32::to_string),
    ]
}

fn texts(column: &[&str]) -> Value {
    column.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().into()
}

/// The text form of an array; `element` renders one that is not null.
fn nullable<T>(column: &[Option<T>], element: impl Fn(&T) -> String) -> Value {
    let elements = column.iter().map(|value| value.as_ref().map_or_else(|| "NULL".to_owned(), &element));
    format!("{{{}}}", elements.collect::<Vec<_>>().join(",")).into()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// Bytes in PostgreSQL's hex form; the backslash is doubled because the element is quoted.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2 + 5);
    text.push_str(r#""\\x"#);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('"');
    text
}

fn failed(error: DbErr) -> EnqueueError {
    let state = sqlx_error(&error).and_then(sqlstate);
    for_producer(state.as_deref(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s01_an_element_cannot_leave_its_quotes() {
        let column = [None, Some("NULL"), Some(r#"a"b\c,{}"#), Some("")];
        let expected = r#"{NULL,"NULL","a\"b\\c,{}",""}"#;
        assert_eq!(nullable(&column, |text| quoted(text)), Value::from(expected));
        assert_eq!(hex(&[0, 0xfe]), r#""\\x00fe""#);
    }
}
