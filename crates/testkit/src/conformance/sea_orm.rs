//! The same store with producers that use SeaORM.

use std::sync::Arc;
use std::time::Duration;

use postrider::{EnqueueError, Enqueued, Message, Operator, Outbox, State};
use sea_orm::{DatabaseConnection, DatabaseTransaction, TransactionTrait};
use uuid::Uuid;

use super::harness::{Harness, RowView};

/// A harness that SeaORM can be used with.
#[allow(async_fn_in_trait)] // as `Harness`
pub trait SeaOrm: Harness {
    /// A connection to its database, and the producer's side of its outbox.
    fn connection(&self) -> (DatabaseConnection, Outbox);
}

/// A harness whose producers use SeaORM.
pub struct WithSeaOrm<H>(H);

impl<H: SeaOrm> Harness for WithSeaOrm<H> {
    type Transaction = DatabaseTransaction;

    async fn fresh() -> Self {
        Self(H::fresh().await)
    }

    fn store(&self) -> Arc<dyn Operator> {
        self.0.store()
    }

    async fn begin(&self) -> DatabaseTransaction {
        self.0.connection().0.begin().await.expect("a transaction begins")
    }

    async fn write(
        &self,
        transaction: &mut DatabaseTransaction,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.0.connection().1.enqueue_many(&*transaction, messages).await
    }

    async fn commit(&self, transaction: DatabaseTransaction) {
        transaction.commit().await.expect("it commits");
    }

    async fn roll_back(&self, transaction: DatabaseTransaction) {
        transaction.rollback().await.expect("it rolls back");
    }

    async fn rows(&self) -> Vec<RowView> {
        self.0.rows().await
    }

    async fn set_status(&self, id: Uuid, status: State) {
        self.0.set_status(id, status).await;
    }

    async fn pass_time(&self, duration: Duration) {
        self.0.pass_time(duration).await;
    }

    async fn now_micros(&self) -> i64 {
        self.0.now_micros().await
    }
}
