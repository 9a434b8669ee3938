//! `enqueue` for users of diesel-async.
//!
//! Diesel has no type for an open transaction: inside `connection.transaction(…)` one holds the connection
//! itself. So [`DieselTransaction::of`] looks at the transaction manager instead, and a connection without an
//! open transaction is refused at run time, before SQL.
//!
//! Diesel tells a serialisation failure by kind, but neither a deadlock nor a lock time-out, and keeps the
//! SQLSTATE to itself. Those two are known by their English texts; with another `lc_messages` they come as
//! [`EnqueueError::Database`].

use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};
use postrider_core::message::{Enqueued, NewRow};
use uuid::Uuid;

use super::{Columns, Driver, Keys, insert};
use crate::enqueue::{CallerTransaction, EnqueueError, Outbox};
use crate::postgres::error::for_producer;
use crate::sql::Sql;

/// A diesel-async connection that is known to have a transaction open.
pub struct DieselTransaction<'a>(pub(crate) &'a mut AsyncPgConnection);

impl<'a> DieselTransaction<'a> {
    /// Takes the connection inside `connection.transaction(…)`, at any depth of savepoints. Anywhere else, also
    /// after a `begin` sent as plain SQL, the answer is [`EnqueueError::NotInTransaction`].
    pub fn of(connection: &'a mut AsyncPgConnection) -> Result<Self, EnqueueError> {
        let status = AnsiTransactionManager::transaction_manager_status_mut(connection);
        match status.transaction_depth() {
            Ok(Some(_)) => Ok(Self(connection)),
            Ok(None) => Err(EnqueueError::NotInTransaction),
            Err(broken) => Err(EnqueueError::Database(broken.into())),
        }
    }
}

impl CallerTransaction for DieselTransaction<'_> {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        insert(self, outbox, &rows).await
    }
}

#[derive(QueryableByName)]
struct Written {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

impl Driver for DieselTransaction<'_> {
    async fn insert_one(&mut self, sql: &Sql, row: &NewRow) -> Result<bool, EnqueueError> {
        let query = sql_query(&**sql)
            .bind::<SqlUuid, _>(row.id)
            .bind::<Text, _>(&*row.namespace)
            .bind::<Text, _>(&*row.topic)
            .bind::<Nullable<Text>, _>(row.key.as_deref())
            .bind::<Nullable<SqlUuid>, _>(row.tenant_id)
            .bind::<Nullable<Text>, _>(row.dedupe_key.as_deref())
            .bind::<Text, _>(&row.payload)
            .bind::<Nullable<Binary>, _>(row.payload_bytes.as_deref())
            .bind::<Text, _>(&row.headers)
            .bind::<Nullable<BigInt>, _>(row.deliver_at_micros)
            .bind::<Nullable<BigInt>, _>(row.delay_micros)
            .bind::<Nullable<Integer>, _>(row.max_attempts);
        Ok(query.execute(&mut *self.0).await.map_err(failed)? > 0)
    }

    async fn insert_all(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<u64, EnqueueError> {
        let written = with_columns(sql, columns).execute(&mut *self.0).await.map_err(failed)?;
        Ok(written as u64)
    }

    async fn insert_many(&mut self, sql: &Sql, columns: Columns<'_>) -> Result<Vec<Uuid>, EnqueueError> {
        let written: Vec<Written> = with_columns(sql, columns).load(&mut *self.0).await.map_err(failed)?;
        Ok(written.into_iter().map(|row| row.id).collect())
    }

    async fn find(&mut self, sql: &Sql, keys: Keys<'_>) -> Result<Vec<(i64, Uuid)>, EnqueueError> {
        let query = sql_query(&**sql)
            .bind::<Array<Text>, _>(keys.namespaces)
            .bind::<Array<Text>, _>(keys.topics)
            .bind::<Array<Text>, _>(keys.dedupe_keys);
        let found: Vec<Found> = query.load(&mut *self.0).await.map_err(failed)?;
        Ok(found.into_iter().map(|row| (row.position, row.id)).collect())
    }
}

fn with_columns<'a>(sql: &'a Sql, columns: Columns<'a>) -> BoxedSqlQuery<'a, Pg, SqlQuery> {
    sql_query(&**sql)
        .into_boxed()
        .bind::<Array<SqlUuid>, _>(columns.ids)
        .bind::<Array<Text>, _>(columns.namespaces)
        .bind::<Array<Text>, _>(columns.topics)
        .bind::<Array<Nullable<Text>>, _>(columns.keys)
        .bind::<Array<Nullable<SqlUuid>>, _>(columns.tenants)
        .bind::<Array<Nullable<Text>>, _>(columns.dedupe_keys)
        .bind::<Array<Text>, _>(columns.payloads)
        .bind::<Array<Nullable<Binary>>, _>(columns.payload_bytes)
        .bind::<Array<Text>, _>(columns.headers)
        .bind::<Array<Nullable<BigInt>>, _>(columns.deliver_at)
        .bind::<Array<Nullable<BigInt>>, _>(columns.delays)
        .bind::<Array<Nullable<Integer>>, _>(columns.max_attempts)
}

fn failed(error: Error) -> EnqueueError {
    let state = match &error {
        Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => Some("40001"),
        Error::DatabaseError(DatabaseErrorKind::Unknown, about) => state_of(about.message()),
        _ => None,
    };
    for_producer(state, error)
}

fn state_of(message: &str) -> Option<&'static str> {
    match message {
        "deadlock detected" => Some("40P01"),
        "canceling statement due to lock timeout" => Some("55P03"),
        _ => None,
    }
}
