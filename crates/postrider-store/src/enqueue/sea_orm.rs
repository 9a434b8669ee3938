//! `enqueue` for users of SeaORM, whose transactions say at run time which database they are on.

use postrider_core::message::{Enqueued, NewRow};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, RuntimeErr};

use super::{CallerTransaction, EnqueueError, Outbox};

impl CallerTransaction for &DatabaseTransaction {
    async fn insert(self, outbox: &Outbox, rows: Vec<NewRow>) -> Result<Vec<Enqueued>, EnqueueError> {
        match self.get_database_backend() {
            #[cfg(feature = "postgres")]
            DbBackend::Postgres => crate::postgres::enqueue::sea_orm::insert(self, outbox, &rows).await,
            #[cfg(feature = "mysql")]
            DbBackend::MySql => crate::mysql::enqueue::sea_orm::insert(self, outbox, &rows).await,
            #[cfg(feature = "sqlite")]
            DbBackend::Sqlite => crate::sqlite::enqueue::sea_orm::insert(self, outbox, &rows).await,
            other => Err(EnqueueError::Database(
                format!("the SeaORM transaction is on {other:?}; switch on Postrider's feature for that database")
                    .into(),
            )),
        }
    }
}

/// The error of sqlx that SeaORM wraps, if it is one.
pub fn sqlx_error(error: &DbErr) -> Option<&sqlx::Error> {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(source))
        | DbErr::Exec(RuntimeErr::SqlxError(source))
        | DbErr::Query(RuntimeErr::SqlxError(source)) => Some(source),
        _ => None,
    }
}
