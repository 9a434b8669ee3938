//! `enqueue` for users of sqlx.

use postrider_core::message::{Enqueued, NewRow};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::{Columns, Driver, Keys, insert};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};
use crate::postgres::error::{for_producer, sqlstate};
use crate::sql::Sql;

impl CallerTransaction for &mut Transaction<'_, Postgres> {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        let driver = Sqlx { connection: self, persistent: !outbox.behind_pooler };
        insert(driver, outbox, &rows).await
    }
}

struct Sqlx<'a> {
    connection: &'a mut PgConnection,
    persistent: bool,
}

impl Driver for Sqlx<'_> {
    async fn insert_one(&mut self, sql: &Sql, row: &NewRow) -> Result<bool, EnqueueError> {
        let query = sqlx::query(AssertSqlSafe(sql.clone()))
            .persistent(self.persistent)
            .bind(row.id)
            .bind(&*row.namespace)
            .bind(&*row.topic)
            .bind(&row.key)
            .bind(row.tenant_id)
            .bind(&row.dedupe_key)
            .bind(&row.payload)
            .bind(&row.payload_bytes)
            .bind(&row.headers)
            .bind(row.deliver_at_micros)
            .bind(row.delay_micros)
            .bind(row.max_attempts);
        Ok(query.execute(&mut *self.connection).await.map_err(failed)?.rows_affected() > 0)
    }

    async fn insert_all(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<u64, EnqueueError> {
        let query = with_columns(sql, columns).persistent(self.persistent);
        Ok(query.execute(&mut *self.connection).await.map_err(failed)?.rows_affected())
    }

    async fn insert_many(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<Vec<Uuid>, EnqueueError> {
        let query = with_columns(sql, columns).persistent(self.persistent);
        let rows = query.fetch_all(&mut *self.connection).await.map_err(failed)?;
        rows.iter().map(|row| row.try_get(0).map_err(failed)).collect()
    }

    async fn find(&mut self, sql: &Sql, keys: Keys<'_>) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let query = sqlx::query_as(AssertSqlSafe(sql.clone()))
            .persistent(self.persistent)
            .bind(keys.namespaces)
            .bind(keys.topics)
            .bind(keys.dedupe_keys);
        query.fetch_all(&mut *self.connection).await.map_err(failed)
    }
}

fn with_columns<'q>(sql: &Sql, columns: Columns<'q>) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(sql.clone()))
        .bind(columns.ids)
        .bind(columns.namespaces)
        .bind(columns.topics)
        .bind(columns.keys)
        .bind(columns.tenants)
        .bind(columns.dedupe_keys)
        .bind(columns.payloads)
        .bind(columns.payload_bytes)
        .bind(columns.headers)
        .bind(columns.deliver_at)
        .bind(columns.delays)
        .bind(columns.max_attempts)
}

fn failed(error: sqlx::Error) -> EnqueueError {
    for_producer(sqlstate(&error).as_deref(), error)
}
