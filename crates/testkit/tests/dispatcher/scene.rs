//! What the tests of the dispatcher share: a store, a running dispatcher, and what arrived at the sink.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::dispatch::DispatcherBuilder;
use postrider::memory::StoredMessage;
use postrider::{
    ClaimedMessage, Dispatcher, Ended, Enqueued, MemoryStore, Message, Names, Outcome, PostgresStore, Sink,
};
use sqlx::PgPool;
use testkit::Postgres;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// One message at the sink.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub id: Uuid,
    pub topic: String,
    pub attempt: i32,
    pub at: Instant,
}

/// A sink that notes what arrives and answers as it is told.
#[derive(Clone)]
pub struct Recorder {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    answer: Arc<dyn Fn(&ClaimedMessage) -> Outcome + Send + Sync>,
    delay: Duration,
    batch: usize,
}

impl Recorder {
    pub fn accepting() -> Self {
        Self::answering(|_| Outcome::Accepted)
    }

    pub fn answering(answer: impl Fn(&ClaimedMessage) -> Outcome + Send + Sync + 'static) -> Self {
        Self { arrivals: Arc::default(), answer: Arc::new(answer), delay: Duration::ZERO, batch: 1 }
    }

    pub fn slow(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub fn in_batches(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().expect("no test panics while it holds this").clone()
    }
}

#[async_trait::async_trait]
impl Sink for Recorder {
    fn max_batch(&self) -> usize {
        self.batch
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        for message in batch {
            let arrival =
                Arrival { id: message.id, topic: message.topic.clone(), attempt: message.attempts, at: Instant::now() };
            self.arrivals.lock().expect("no test panics while it holds this").push(arrival);
        }
        tokio::time::sleep(self.delay).await;
        batch.iter().map(|message| (self.answer)(message)).collect()
    }
}

/// A dispatcher that runs, to be stopped.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Ended>,
}

impl Running {
    pub fn start(builder: DispatcherBuilder) -> Self {
        let stop = CancellationToken::new();
        let dispatcher = builder.build().expect("the settings agree");
        Self { task: tokio::spawn(dispatcher.run(stop.clone())), stop }
    }

    pub async fn stop(self) -> Ended {
        self.stop.cancel();
        self.task.await.expect("the dispatcher does not panic")
    }
}

/// Enqueues in a transaction of its own, in memory.
pub async fn enqueue(store: &MemoryStore, message: Message) -> Uuid {
    let mut transaction = store.begin();
    let enqueued = store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
    transaction.commit();
    enqueued.id()
}

pub fn message(topic: &'static str) -> Message {
    Message::json("shop", topic, &serde_json::json!({ "order": 1 }))
}

pub fn row(store: &MemoryStore, id: Uuid) -> StoredMessage {
    store.enqueued().into_iter().find(|row| row.id == id).expect("the row is there")
}

/// Waits until a condition holds, by small steps of tokio's clock, which stands still otherwise.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..200_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never came true: {what}");
}

/// A migrated outbox in a database of its own.
pub struct OnPostgres {
    pub pool: PgPool,
    pub store: PostgresStore,
}

impl OnPostgres {
    pub async fn new() -> Self {
        let server = Postgres::shared().await.expect("a private PostgreSQL starts");
        let database = server.create_database().await.expect("a database is made");
        let pool = database.pool().await.expect("it accepts connections");
        let store = PostgresStore::new(pool.clone(), Names::default());
        store.migrate().await.expect("the migrations run");
        Self { pool, store }
    }

    pub async fn enqueue(&self, message: Message) -> Enqueued {
        let mut transaction = self.pool.begin().await.expect("a transaction begins");
        let enqueued = self.store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
        transaction.commit().await.expect("it commits");
        enqueued
    }

    pub fn dispatcher(&self, sink: impl Sink) -> DispatcherBuilder {
        Dispatcher::builder(self.store.clone(), sink)
    }

    pub async fn count(&self, status: &str) -> i64 {
        sqlx::query_scalar("select count(*) from outbox_messages where status = $1")
            .bind(status)
            .fetch_one(&self.pool)
            .await
            .expect("the table can be read")
    }
}
