//! What a store must offer to be tested: an empty outbox, transactions, a view of its rows, and time that passes.

use std::sync::Arc;
use std::time::Duration;

use postrider::layout::Ability;
use postrider::store::{ClaimRequest, Scope};
use postrider::{ClaimedMessage, EnqueueError, Enqueued, Message, Operator, State};
use uuid::Uuid;

use super::scene::{LEASE, request};

/// A row as the suite looks at it. Times are microseconds since 1970 on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the columns of `outbox_messages`
pub struct RowView {
    pub id: Uuid,
    pub status: State,
    pub attempts: i32,
    pub max_attempts: Option<i32>,
    pub next_attempt_at: i64,
    pub locked_by: Option<Uuid>,
    pub locked_until: Option<i64>,
    pub last_error: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub delivered_at: Option<i64>,
}

/// One store under test. Every test has a fresh one.
#[allow(async_fn_in_trait)] // a test awaits these on its own task, so they need not be Send
pub trait Harness: Sized {
    /// A producer's open transaction.
    type Transaction;

    /// An empty outbox.
    async fn fresh() -> Self;

    /// Why a promise cannot be kept, where a table lacks what it takes. It is run all the same, and must fail.
    fn cannot(_promise: &str) -> Option<&'static str> {
        None
    }

    /// Whether the table has what an ability takes.
    fn can(_ability: Ability) -> bool {
        true
    }

    /// The store, as its operator sees it.
    fn store(&self) -> Arc<dyn Operator>;

    /// Opens a transaction.
    async fn begin(&self) -> Self::Transaction;

    /// Enqueues in it.
    async fn write(
        &self,
        transaction: &mut Self::Transaction,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError>;

    /// Commits it.
    async fn commit(&self, transaction: Self::Transaction);

    /// Rolls it back.
    async fn roll_back(&self, transaction: Self::Transaction);

    /// All committed rows in the order they were written.
    async fn rows(&self) -> Vec<RowView>;

    /// Changes nothing of a row but its status, as an operator would by hand.
    async fn set_status(&self, id: Uuid, status: State);

    /// Lets time pass for the store: every row becomes older by this much.
    async fn pass_time(&self, duration: Duration);

    /// What time it is on the store's clock, in microseconds since 1970.
    async fn now_micros(&self) -> i64;

    /// Enqueues in a transaction that commits.
    async fn enqueue_many(&self, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut transaction = self.begin().await;
        let answers = self.write(&mut transaction, messages).await;
        self.commit(transaction).await;
        answers
    }

    /// Enqueues a message that must be new; answers its id.
    async fn put(&self, message: Message) -> Uuid {
        let answers = self.enqueue_many(vec![message]).await.expect("the message is valid");
        assert!(answers[0].is_new(), "{answers:?}");
        answers[0].id()
    }

    /// Enqueues messages one after the other; answers their ids.
    async fn put_all(&self, messages: impl IntoIterator<Item = Message>) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for message in messages {
            ids.push(self.put(message).await);
        }
        ids
    }

    /// The row with this id, if there is one.
    async fn find(&self, id: Uuid) -> Option<RowView> {
        self.rows().await.into_iter().find(|row| row.id == id)
    }

    /// The row with this id.
    async fn row(&self, id: Uuid) -> RowView {
        self.find(id).await.expect("the row is there")
    }

    /// Claims.
    async fn claim(&self, request: &ClaimRequest) -> Vec<ClaimedMessage> {
        self.store().claim(request).await.expect("the store claims").messages
    }

    /// Claims everything that can be claimed in the usual way, for a worker.
    async fn claim_all(&self, worker: Uuid) -> Vec<ClaimedMessage> {
        self.claim(&request(worker)).await
    }

    /// Claims the only row that can be claimed, for a worker.
    async fn claim_one(&self, worker: Uuid) -> ClaimedMessage {
        let mut messages = self.claim_all(worker).await;
        assert_eq!(messages.len(), 1, "one row can be claimed");
        messages.remove(0)
    }

    /// Enqueues a message and claims it.
    async fn put_and_claim(&self, message: Message) -> ClaimedMessage {
        self.put(message).await;
        self.claim_one(Uuid::new_v4()).await
    }

    /// Lets every lease that is held now run out, as if the workers had died.
    async fn expire(&self) {
        self.pass_time(LEASE + Duration::from_secs(1)).await;
    }

    /// Sweeps all rows; answers the ids that were buried.
    async fn sweep(&self, max_attempts: i32) -> Vec<Uuid> {
        self.store().sweep(&Scope::all(), max_attempts, 100).await.expect("the store sweeps").buried
    }
}
