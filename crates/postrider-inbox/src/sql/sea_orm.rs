//! `enter` for users of SeaORM, whose transactions say at run time which database they are on.

use std::marker::PhantomData;

use postrider_store::enqueue::sqlx_error;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult};

use super::database::Database;
use super::{ConsumerTransaction, Driver, Failed, InboxTables, Kind, Numbers, Statement, Value, enter, leave};
use crate::{Delivery, Entry, InboxError};

impl ConsumerTransaction for &DatabaseTransaction {
    async fn enter(self, tables: &InboxTables, delivery: &Delivery) -> Result<Entry<()>, InboxError> {
        match self.get_database_backend() {
            #[cfg(feature = "postgres")]
            DbBackend::Postgres => enter(&mut SeaOrm::<sqlx::Postgres>::on(self), tables, delivery).await,
            #[cfg(feature = "mysql")]
            DbBackend::MySql => enter(&mut SeaOrm::<sqlx::MySql>::on(self), tables, delivery).await,
            #[cfg(feature = "sqlite")]
            DbBackend::Sqlite => enter(&mut SeaOrm::<sqlx::Sqlite>::on(self), tables, delivery).await,
            other => Err(switched_off(other)),
        }
    }

    async fn leave(self, tables: &InboxTables, delivery: &Delivery) -> Result<(), InboxError> {
        match self.get_database_backend() {
            #[cfg(feature = "postgres")]
            DbBackend::Postgres => leave(&mut SeaOrm::<sqlx::Postgres>::on(self), tables, delivery).await,
            #[cfg(feature = "mysql")]
            DbBackend::MySql => leave(&mut SeaOrm::<sqlx::MySql>::on(self), tables, delivery).await,
            #[cfg(feature = "sqlite")]
            DbBackend::Sqlite => leave(&mut SeaOrm::<sqlx::Sqlite>::on(self), tables, delivery).await,
            other => Err(switched_off(other)),
        }
    }
}

fn switched_off(backend: DbBackend) -> InboxError {
    InboxError::Config(format!(
        "the SeaORM transaction is on {backend:?}; switch on Postrider's feature for that database"
    ))
}

/// A SeaORM transaction on a known database.
pub(crate) struct SeaOrm<'a, DB>(&'a DatabaseTransaction, PhantomData<DB>);

impl<'a, DB> SeaOrm<'a, DB> {
    fn on(transaction: &'a DatabaseTransaction) -> Self {
        Self(transaction, PhantomData)
    }
}

impl<DB: Database> Driver for SeaOrm<'_, DB> {
    type Database = DB;

    async fn ask(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Vec<Numbers>, Failed> {
        let backend = self.0.get_database_backend();
        let values = values.iter().map(|value| match *value {
            Value::Text(text) => sea_orm::Value::from(text),
            Value::Id(id) if backend == DbBackend::Postgres => id.into(),
            Value::Id(id) => id.hyphenated().to_string().into(),
            Value::Number(number) => number.into(),
        });
        let statement = sea_orm::Statement::from_sql_and_values(backend, &*statement.sql, values);
        let rows = self.0.query_all_raw(statement).await.map_err(failed::<DB>)?;
        rows.iter().map(|row| numbers(row).map_err(failed::<DB>)).collect()
    }
}

fn numbers(row: &QueryResult) -> Result<Numbers, DbErr> {
    Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?))
}

fn failed<DB: Database>(error: DbErr) -> Failed {
    let kind = sqlx_error(&error).map_or(Kind::Refused, DB::kind);
    Failed::new(kind, error)
}
