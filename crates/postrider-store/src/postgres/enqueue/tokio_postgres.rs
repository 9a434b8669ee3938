//! `enqueue` for users of tokio-postgres, and of deadpool or bb8 on top of it.
//!
//! Each statement goes out with its parameters' types in one round trip, and is not prepared by name: a named
//! statement would cost a round trip of its own on every new connection and would not survive a transaction
//! pooler. The server parses the text each time, which is far cheaper than the round trip it saves.

use postrider_core::message::{Enqueued, NewRow};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Transaction};
use uuid::Uuid;

use super::{Columns, Driver, Keys, insert};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};
use crate::postgres::error::for_producer;
use crate::sql::Sql;

impl CallerTransaction for &Transaction<'_> {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        insert(TokioPostgres(self), outbox, &rows).await
    }
}

struct TokioPostgres<'a>(&'a Transaction<'a>);

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl TokioPostgres<'_> {
    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, EnqueueError> {
        self.0.query_typed(sql, parameters).await.map_err(failed)
    }
}

impl Driver for TokioPostgres<'_> {
    async fn insert_one(&mut self, sql: &Sql, row: &NewRow) -> Result<bool, EnqueueError> {
        let parameters: [Parameter<'_>; 12] = [
            (&row.id, Type::UUID),
            (&row.namespace, Type::TEXT),
            (&row.topic, Type::TEXT),
            (&row.key, Type::TEXT),
            (&row.tenant_id, Type::UUID),
            (&row.dedupe_key, Type::TEXT),
            (&row.payload, Type::TEXT),
            (&row.payload_bytes, Type::BYTEA),
            (&row.headers, Type::TEXT),
            (&row.deliver_at_micros, Type::INT8),
            (&row.delay_micros, Type::INT8),
            (&row.max_attempts, Type::INT4),
        ];
        Ok(self.0.execute_typed(sql, &parameters).await.map_err(failed)? > 0)
    }

    async fn insert_all(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<u64, EnqueueError> {
        self.0.execute_typed(sql, &arrays(&columns)).await.map_err(failed)
    }

    async fn insert_many(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<Vec<Uuid>, EnqueueError> {
        let rows = self.query(sql, &arrays(&columns)).await?;
        rows.iter().map(|row| row.try_get(0).map_err(failed)).collect()
    }

    async fn find(&mut self, sql: &Sql, keys: Keys<'_>) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let parameters: [Parameter<'_>; 3] = [
            (&keys.namespaces, Type::TEXT_ARRAY),
            (&keys.topics, Type::TEXT_ARRAY),
            (&keys.dedupe_keys, Type::TEXT_ARRAY),
        ];
        let rows = self.query(sql, &parameters).await?;
        rows.iter().map(|row| Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))).collect()
    }
}

fn arrays<'a>(columns: &'a Columns<'_>) -> [Parameter<'a>; 12] {
    [
        (&columns.ids, Type::UUID_ARRAY),
        (&columns.namespaces, Type::TEXT_ARRAY),
        (&columns.topics, Type::TEXT_ARRAY),
        (&columns.keys, Type::TEXT_ARRAY),
        (&columns.tenants, Type::UUID_ARRAY),
        (&columns.dedupe_keys, Type::TEXT_ARRAY),
        (&columns.payloads, Type::TEXT_ARRAY),
        (&columns.payload_bytes, Type::BYTEA_ARRAY),
        (&columns.headers, Type::TEXT_ARRAY),
        (&columns.deliver_at, Type::INT8_ARRAY),
        (&columns.delays, Type::INT8_ARRAY),
        (&columns.max_attempts, Type::INT4_ARRAY),
    ]
}

fn failed(error: Error) -> EnqueueError {
    let state = error.code().map(|state| state.code().to_owned());
    for_producer(state.as_deref(), error)
}
