//! The conformance suite on the store in memory, with a clock that stands still until it is told to go on.

use std::sync::Arc;
use std::time::Duration;

use postrider::memory::{ManualClock, StoredMessage};
use postrider::{EnqueueError, Enqueued, MemoryStore, MemoryTransaction, Message, Operator, State};
use testkit::conformance::{Harness, RowView};
use uuid::Uuid;

struct Memory {
    store: MemoryStore,
    clock: ManualClock,
}

impl Harness for Memory {
    type Transaction = MemoryTransaction;

    async fn fresh() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::with_clock(clock.clone()), clock }
    }

    fn store(&self) -> Arc<dyn Operator> {
        Arc::new(self.store.clone())
    }

    async fn begin(&self) -> MemoryTransaction {
        self.store.begin()
    }

    async fn write(
        &self,
        transaction: &mut MemoryTransaction,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.outbox().enqueue_many(transaction, messages).await
    }

    async fn commit(&self, transaction: MemoryTransaction) {
        transaction.commit();
    }

    async fn roll_back(&self, transaction: MemoryTransaction) {
        drop(transaction);
    }

    async fn rows(&self) -> Vec<RowView> {
        self.store.enqueued().into_iter().map(view).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        assert!(self.store.edit(id, |row| row.status = status));
    }

    async fn pass_time(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    async fn now_micros(&self) -> i64 {
        self.store.now_micros()
    }
}

fn view(row: StoredMessage) -> RowView {
    RowView {
        id: row.id,
        status: row.status,
        attempts: row.attempts,
        max_attempts: row.max_attempts,
        next_attempt_at: row.next_attempt_at_micros,
        locked_by: row.locked_by,
        locked_until: row.locked_until_micros,
        last_error: row.last_error,
        created_at: row.created_at_micros,
        updated_at: row.updated_at_micros,
        delivered_at: row.delivered_at_micros,
    }
}

testkit::conformance!(Memory);
