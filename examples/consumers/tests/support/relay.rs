//! An outbox on SQLite, its dispatcher, and a sink that delivers everything several times.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::{
    BatchFor, BreakerConfig, ClaimedMessage, Dispatcher, Ended, Message, Outcome, Scope, Sink, SqliteStore, Store,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub struct Outbox {
    store: Arc<SqliteStore>,
    _directory: TempDir,
}

impl Outbox {
    pub async fn open() -> Self {
        let directory = TempDir::new().expect("a directory");
        let store = SqliteStore::open(directory.path().join("outbox.db")).await.expect("the file opens");
        store.migrate().await.expect("the migrations run");
        Self { store: Arc::new(store), _directory: directory }
    }

    /// Enqueues events of several keys in transactions, and answers their ids in that order.
    pub async fn enqueue(&self, count: usize) -> Vec<Uuid> {
        self.enqueue_of(count, 7).await
    }

    /// The same for so many keys.
    pub async fn enqueue_of(&self, count: usize, keys: usize) -> Vec<Uuid> {
        let mut events = Vec::new();
        for some in (0..count).collect::<Vec<_>>().chunks(50) {
            let mut transaction = self.store.pool().begin_with("begin immediate").await.expect("it begins");
            for number in some {
                let message = Message::json("shop", "order.placed", &json!({ "number": number }));
                let message = message.key((number % keys).to_string());
                events.push(message.id());
                self.store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
            }
            transaction.commit().await.expect("it commits");
        }
        events
    }

    /// Whether all was delivered. Nothing may be dead.
    pub async fn is_empty(&self) -> bool {
        let stats = self.store.stats(&Scope::all()).await.expect("the store answers");
        assert_eq!(stats.dead, 0, "the relay has given up");
        stats.pending + stats.processing == 0
    }

    /// Runs a dispatcher that never gives up.
    pub fn relay(&self, sink: Arc<dyn Sink>) -> Relay {
        let breaker = BreakerConfig { failures: 1_000_000, ..BreakerConfig::default() };
        let pause = Duration::from_millis(600);
        let dispatcher = Dispatcher::builder_shared(self.store.clone(), sink)
            .backoff(pause, pause)
            .max_attempts(1_000)
            .breaker(breaker)
            .build()
            .expect("the settings agree");
        Relay { task: tokio::spawn(dispatcher.run(CancellationToken::new())) }
    }
}

/// A dispatcher that runs until it is dropped.
pub struct Relay {
    task: JoinHandle<Ended>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Publishes all twice, and at the first attempt loses the answer, so that the relay does it again.
pub fn stuttering(sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
    Arc::new(Stuttering(sink))
}

struct Stuttering(Arc<dyn Sink>);

#[async_trait]
impl Sink for Stuttering {
    fn max_batch(&self) -> usize {
        self.0.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.0.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.0.batch_for(message)
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let _ = self.0.publish(batch).await;
        let answers = self.0.publish(batch).await;
        let lose = |(message, outcome): (&ClaimedMessage, Outcome)| match message.attempts {
            1 => Outcome::Unknown("the answer was lost, as this test wants it".into()),
            _ => outcome,
        };
        batch.iter().zip(answers).map(lose).collect()
    }
}
