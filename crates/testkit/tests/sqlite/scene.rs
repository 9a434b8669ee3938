//! A migrated outbox in a file of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::dispatch::DispatcherBuilder;
use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, Order, Scope};
use postrider::{ClaimedMessage, Dispatcher, Ended, Message, PublishError, SqliteStore, Store, callback};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub struct OnFile {
    pub store: SqliteStore,
    directory: TempDir,
}

impl OnFile {
    pub async fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let store = SqliteStore::open(directory.path().join("outbox.db")).await.expect("the file opens");
        store.migrate().await.expect("the migrations run");
        Self { store, directory }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same file, opened anew as another process would.
    pub async fn again(&self) -> SqliteStore {
        SqliteStore::open(self.file("outbox.db")).await.expect("the file opens")
    }

    pub async fn put(&self, message: Message) -> Uuid {
        put(&self.store, message).await
    }
}

pub async fn put(store: &SqliteStore, message: Message) -> Uuid {
    let mut transaction = store.pool().begin_with("begin immediate").await.expect("it begins");
    let enqueued = store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
    transaction.commit().await.expect("it commits");
    enqueued.id()
}

pub fn message() -> Message {
    Message::json("shop", "order.placed", &7)
}

pub fn request(lease: Duration) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit: 100,
        max_bytes: u64::MAX,
        lease,
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    }
}

pub async fn claim(store: &SqliteStore, lease: Duration) -> Vec<ClaimedMessage> {
    store.claim(&request(lease)).await.expect("the store claims").messages
}

/// What arrived, and when.
pub type Arrivals = Arc<Mutex<Vec<(Uuid, Instant)>>>;

/// A dispatcher that runs, to be stopped.
pub struct Running {
    pub arrivals: Arrivals,
    stop: CancellationToken,
    task: JoinHandle<Ended>,
}

impl Running {
    pub fn start(store: SqliteStore, set: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder) -> Self {
        let (arrivals, stop) = (Arrivals::default(), CancellationToken::new());
        let noted = arrivals.clone();
        let sink = callback(move |message: ClaimedMessage| {
            noted.lock().expect("nobody panics with it").push((message.id, Instant::now()));
            async { Ok::<(), PublishError>(()) }
        });
        let dispatcher = set(Dispatcher::builder(store, sink)).build().expect("the settings agree");
        Self { arrivals, task: tokio::spawn(dispatcher.run(stop.clone())), stop }
    }

    pub fn count(&self) -> usize {
        self.arrivals.lock().expect("nobody panics with it").len()
    }

    pub fn arrival(&self, id: Uuid) -> Option<Instant> {
        self.arrivals
            .lock()
            .expect("nobody panics with it")
            .iter()
            .find(|(arrived, _)| *arrived == id)
            .map(|(_, at)| *at)
    }

    pub async fn stop(self) {
        self.stop.cancel();
        let ended = self.task.await.expect("the dispatcher does not panic");
        assert_eq!(ended.abandoned, 0);
    }
}
