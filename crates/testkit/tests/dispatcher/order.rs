//! Order per key: what comes after a failing message of a key waits, and nobody else does.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::store::Order;
use postrider::{ClaimedMessage, Dispatcher, DispatcherBuilder, MemoryStore, Message, Outcome, Sink, State};

use crate::scene::{OnPostgres, Recorder, Running, enqueue, until};

/// What a sink saw.
#[derive(Default)]
struct Seen {
    /// The numbers that were delivered, by key.
    delivered: BTreeMap<String, Vec<u64>>,
    under_way: HashSet<String>,
    handed_over: u64,
    /// The most messages of one key in a call.
    longest_run: usize,
}

/// A sink that does not answer well to every seventh message it is handed, and looks that no key is in two calls at once.
#[derive(Clone)]
struct Keyed {
    seen: Arc<Mutex<Seen>>,
    batch: usize,
    keeps_order: bool,
    delay: Duration,
    seventh: fn(&ClaimedMessage) -> Outcome,
}

impl Keyed {
    fn new(batch: usize) -> Self {
        let seventh = |_: &ClaimedMessage| Outcome::retry("it is the seventh");
        Self { seen: Arc::default(), batch, keeps_order: false, delay: Duration::from_millis(1), seventh }
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().expect("no test panics while it holds this"))
    }

    fn delivered(&self) -> usize {
        self.seen(|seen| seen.delivered.values().map(Vec::len).sum())
    }

    fn numbers(&self, key: &str) -> Vec<u64> {
        self.seen(|seen| seen.delivered.get(key).cloned().unwrap_or_default())
    }

    /// Every number of every key came, in order.
    fn check(&self, keys: u64, each: u64) {
        for key in 0..keys {
            assert_eq!(self.numbers(&format!("key-{key}")), (1..=each).collect::<Vec<_>>(), "key {key}");
        }
    }

    fn outcome(&self, message: &ClaimedMessage, failed: &mut HashSet<String>) -> Outcome {
        let key = message.key.clone().expect("all have one");
        if failed.contains(&key) {
            return Outcome::Busy { after: Duration::ZERO, why: "after one that failed".into() };
        }
        let is_seventh = self.seen(|seen| {
            seen.handed_over += 1;
            seen.handed_over.is_multiple_of(7)
        });
        let outcome = if is_seventh { (self.seventh)(message) } else { Outcome::Accepted };
        if outcome.is_delivered() {
            let number = message.payload.to_value().expect("JSON")["number"].as_u64().expect("a number");
            self.seen(|seen| seen.delivered.entry(key).or_default().push(number));
        } else if self.keeps_order {
            failed.insert(key);
        }
        outcome
    }
}

#[async_trait::async_trait]
impl Sink for Keyed {
    fn max_batch(&self) -> usize {
        self.batch
    }

    fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let mut keys: BTreeMap<String, usize> = BTreeMap::new();
        for message in batch {
            *keys.entry(message.key.clone().expect("all have one")).or_default() += 1;
        }
        for (key, count) in &keys {
            assert!(*count == 1 || self.keeps_order, "{key} is {count} times in one call");
            self.seen(|seen| {
                seen.longest_run = seen.longest_run.max(*count);
                assert!(seen.under_way.insert(key.clone()), "{key} is in two calls at once");
            });
        }
        tokio::time::sleep(self.delay).await;
        let mut failed = HashSet::new();
        let outcomes = batch.iter().map(|message| self.outcome(message, &mut failed)).collect();
        self.seen(|seen| keys.keys().for_each(|key| assert!(seen.under_way.remove(key))));
        outcomes
    }
}

fn numbered(key: u64, number: u64) -> Message {
    Message::json("shop", "t", &serde_json::json!({ "number": number })).key(format!("key-{key}"))
}

async fn fill(store: &MemoryStore, keys: u64, each: u64) {
    for number in 1..=each {
        for key in 0..keys {
            enqueue(store, numbered(key, number)).await;
        }
    }
}

fn ordered(builder: DispatcherBuilder) -> DispatcherBuilder {
    builder.order(Order::Key).backoff(Duration::from_millis(5), Duration::from_millis(20)).max_attempts(100)
}

/// Three dispatchers on one store in memory.
fn three(store: &MemoryStore, sink: &Keyed) -> Vec<Running> {
    let one = || ordered(Dispatcher::builder(store.clone(), sink.clone()).batch_size(50).concurrency(8));
    (0..3).map(|_| Running::start(one())).collect()
}

async fn stop(all: Vec<Running>) {
    for running in all {
        assert_eq!(running.stop().await.abandoned, 0);
    }
}

async fn three_deliver_in_order(sink: Keyed) {
    let (keys, each) = (6, 60);
    let store = MemoryStore::new();
    fill(&store, keys, each).await;
    let running = three(&store, &sink);
    let all = usize::try_from(keys * each).expect("a small number");
    until("all is delivered", || sink.delivered() >= all).await;
    until("all is settled", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    stop(running).await;
    sink.check(keys, each);
}

#[tokio::test(start_paused = true)]
async fn r59_r60_t25_a_key_keeps_its_order_while_every_seventh_message_fails() {
    three_deliver_in_order(Keyed::new(1)).await;
}

#[tokio::test(start_paused = true)]
async fn r59_t25_in_batches_a_key_is_once_in_a_call_unless_the_sink_keeps_order() {
    three_deliver_in_order(Keyed::new(10)).await;
    let keeping = Keyed { keeps_order: true, ..Keyed::new(10) };
    three_deliver_in_order(keeping.clone()).await;
    assert!(keeping.seen(|seen| seen.longest_run) > 1, "runs of a key go in one call");
}

#[tokio::test(start_paused = true)]
async fn r59_only_the_messages_that_failed_spend_attempts() {
    let store = MemoryStore::new();
    fill(&store, 3, 30).await;
    let sink = Keyed::new(1);
    let running = Running::start(ordered(Dispatcher::builder(store.clone(), sink.clone())));
    until("all is settled", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    stop(vec![running]).await;
    let failed = sink.seen(|seen| seen.handed_over / 7);
    let spent: i32 = store.enqueued().iter().map(|row| row.attempts).sum();
    assert_eq!(u64::try_from(spent).expect("a count"), 90 + failed, "those that waited spent none");
}

#[tokio::test(start_paused = true)]
async fn r61_a_message_that_is_refused_for_good_does_not_hold_up_its_key() {
    let store = MemoryStore::new();
    fill(&store, 3, 30).await;
    let sink = Keyed { seventh: |_| Outcome::Reject("it is the seventh".into()), ..Keyed::new(1) };
    let running = three(&store, &sink);
    let finished = |state| store.enqueued().iter().filter(|row| row.status == state).count();
    until("all is finished", || finished(State::Delivered) + finished(State::Dead) == 90).await;
    stop(running).await;
    assert_eq!(finished(State::Dead), 90 / 7);
    for key in 0..3 {
        assert!(sink.numbers(&format!("key-{key}")).is_sorted_by(|a, b| a < b), "key {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn r59_a_key_without_failures_does_not_wait_for_the_next_poll() {
    let store = MemoryStore::new();
    fill(&store, 1, 350).await;
    let sink = Keyed { seventh: |_| Outcome::Accepted, ..Keyed::new(1) };
    let builder = ordered(Dispatcher::builder(store.clone(), sink.clone())).poll_interval(Duration::from_secs(10));
    let begun = tokio::time::Instant::now();
    let running = Running::start(builder);
    until("all is delivered", || sink.delivered() == 350).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    stop(vec![running]).await;
    sink.check(1, 350);
}

#[tokio::test(start_paused = true)]
async fn r59_what_waits_for_its_key_is_given_back_at_a_stop() {
    let store = MemoryStore::new();
    fill(&store, 1, 20).await;
    let sink = Keyed { delay: Duration::from_secs(3), ..Keyed::new(1) };
    let running = Running::start(ordered(Dispatcher::builder(store.clone(), sink.clone())));
    until("the first is under way", || sink.seen(|seen| !seen.under_way.is_empty())).await;
    stop(vec![running]).await;
    let rows = store.enqueued();
    assert_eq!(rows[0].status, State::Delivered);
    assert!(
        rows[1..].iter().all(|row| row.status == State::Pending && row.attempts == 0),
        "all others were given back"
    );
}

/// Takes its time with messages that have a key, and none with the others.
#[derive(Clone, Default)]
struct SlowWithKeys {
    begun: Arc<AtomicUsize>,
    without_key: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Sink for SlowWithKeys {
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        if batch.iter().all(|message| message.key.is_none()) {
            self.without_key.fetch_add(batch.len(), Ordering::Relaxed);
        } else {
            self.begun.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        vec![Outcome::Accepted; batch.len()]
    }
}

#[tokio::test(start_paused = true)]
async fn r59_what_waits_for_slow_keys_leaves_room_for_others() {
    let store = MemoryStore::new();
    let sink = SlowWithKeys::default();
    let builder = Dispatcher::builder(store.clone(), sink.clone()).batch_size(100).max_rows(400).concurrency(64);
    let running = Running::start(ordered(builder));
    // Each key finds nothing else to claim, and all its messages would fit into what is left of the hand.
    for key in 0..4 {
        for number in 0..100 {
            enqueue(&store, numbered(key, number)).await;
        }
        let begun = usize::try_from(key).expect("a small number") + 1;
        until("the first of the key is under way", || sink.begun.load(Ordering::Relaxed) >= begun).await;
    }
    let begun = tokio::time::Instant::now();
    for _ in 0..50 {
        enqueue(&store, Message::json("shop", "t", &1)).await;
    }
    until("what has no key is delivered", || sink.without_key.load(Ordering::Relaxed) == 50).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn r59_what_waits_longer_than_its_lease_keeps_its_order() {
    let store = MemoryStore::new();
    fill(&store, 2, 12).await;
    let sink = Keyed { delay: Duration::from_millis(300), ..Keyed::new(1) };
    let one = || {
        let builder = Dispatcher::builder(store.clone(), sink.clone()).lease(Duration::from_secs(1));
        ordered(builder).poll_interval(Duration::from_millis(100))
    };
    let running = vec![Running::start(one()), Running::start(one())];
    until("all is settled", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    stop(running).await;
    sink.check(2, 12);
}

#[tokio::test(start_paused = true)]
async fn r59_t25_after_a_panic_nothing_is_sent_past_the_message_that_caused_it() {
    /// Panics on a batch with a poisonous message in it, as long as it is not alone and seldom enough.
    struct Poisoned(Keyed);
    #[async_trait::async_trait]
    impl Sink for Poisoned {
        fn max_batch(&self) -> usize {
            10
        }
        fn keeps_order(&self) -> bool {
            true
        }
        async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
            let number = |message: &ClaimedMessage| message.payload.to_value().expect("JSON")["number"].as_u64();
            let poison = batch.iter().any(|message| number(message) == Some(4) && message.attempts < 3);
            assert!(!poison, "the sink does not like this one");
            self.0.publish(batch).await
        }
    }
    let store = MemoryStore::new();
    fill(&store, 1, 9).await;
    let sink = Keyed { seventh: |_| Outcome::Accepted, keeps_order: true, ..Keyed::new(10) };
    let running = Running::start(ordered(Dispatcher::builder(store.clone(), Poisoned(sink.clone()))));
    until("all is settled", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    stop(vec![running]).await;
    sink.check(1, 9);
}

#[tokio::test]
async fn r59_r60_on_postgresql_a_key_keeps_its_order_while_it_is_written_and_fails() {
    let scene = OnPostgres::new().await;
    let sink = Keyed::new(1);
    let one = || ordered(scene.dispatcher(sink.clone()).batch_size(40).poll_interval(Duration::from_millis(50)));
    let running: Vec<Running> = (0..3).map(|_| Running::start(one())).collect();
    let (keys, each) = (8, 50);
    for number in 1..=each {
        for key in 0..keys {
            scene.enqueue(numbered(key, number)).await;
        }
    }
    let all = usize::try_from(keys * each).expect("a small number");
    testkit::within(Duration::from_secs(120), "all is delivered", || async { sink.delivered() >= all })
        .await
        .expect("in time");
    stop(running).await;
    sink.check(keys, each);
}

/// A claim does not look behind the backlog of a busy key each time, because that is expensive; it must do so now and then.
#[tokio::test]
async fn r59_on_postgresql_a_backlog_of_one_slow_key_holds_up_nobody_else() {
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, key, payload)
        select 'shop', 't', 'hot', '{}' from generate_series(1, 3000)";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    let sink = SlowWithKeys::default();
    let builder = scene.dispatcher(sink.clone()).batch_size(10).poll_interval(Duration::from_secs(10));
    let running = Running::start(ordered(builder));
    let one = async |what, seen: &AtomicUsize| {
        let patience = Duration::from_secs(120);
        testkit::within(patience, what, || async { seen.load(Ordering::Relaxed) >= 1 }).await.expect("in time");
    };
    one("the first of the key is under way", &sink.begun).await;
    scene.enqueue(Message::json("shop", "t", &1)).await;
    one("what has no key is delivered", &sink.without_key).await;
    stop(vec![running]).await;
}

/// Numbers are taken one at a time: a connection that has written before must not have an earlier one in stock.
#[tokio::test]
async fn t23_on_postgresql_one_connection_after_the_other_writes_in_order() {
    let scene = OnPostgres::new().await;
    let outbox = scene.store.outbox();
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(scene.pool.acquire().await.expect("a connection"));
    }
    for round in 0..4 {
        for (at, connection) in connections.iter_mut().enumerate() {
            let mut transaction = sqlx::Connection::begin(&mut **connection).await.expect("a transaction begins");
            let number = round * 3 + u64::try_from(at).expect("a small number") + 1;
            outbox.enqueue(&mut transaction, numbered(0, number)).await.expect("a good message");
            transaction.commit().await.expect("it commits");
        }
    }
    drop(connections);
    let sink = Keyed { seventh: |_| Outcome::Accepted, ..Keyed::new(1) };
    let running = Running::start(ordered(scene.dispatcher(sink.clone())));
    testkit::within(Duration::from_secs(120), "all is delivered", || async { sink.delivered() >= 12 })
        .await
        .expect("in time");
    stop(vec![running]).await;
    sink.check(1, 12);
}

/// Claims that overlapped would take turns in no order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_at_a_time_keeps_the_order_of_enqueueing_through_a_backlog() {
    const MESSAGES: usize = 20_000;
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, 20000)";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    let ids = sqlx::query_scalar("select id from outbox_messages order by seq").fetch_all(&scene.pool);
    let ids: Vec<uuid::Uuid> = ids.await.expect("ids");
    let sink = Recorder::accepting().in_batches(500);
    let running = Running::start(scene.dispatcher(sink.clone()).concurrency(1).batch_size(1_000));
    until("all have arrived", || sink.arrivals().len() == MESSAGES).await;
    assert_eq!(running.stop().await.abandoned, 0);
    let arrived: Vec<uuid::Uuid> = sink.arrivals().into_iter().map(|arrival| arrival.id).collect();
    let displaced = arrived.iter().zip(&ids).filter(|(arrived, id)| arrived != id).count();
    assert_eq!(displaced, 0, "of {MESSAGES} messages so many came at another place");
}
