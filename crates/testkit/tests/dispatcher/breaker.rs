//! A sink that is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider::state::State;
use postrider::{BreakerConfig, ClaimedMessage, Dispatcher, MemoryStore, Outcome, Sink};

use crate::scene::{Running, enqueue, message, until};

/// Down or up, with a count of everything that was asked of it.
#[derive(Clone, Default)]
struct Switched {
    up: Arc<AtomicBool>,
    says_ready: Arc<AtomicBool>,
    publishes: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Sink for Switched {
    async fn publish(&self, _batch: &[ClaimedMessage]) -> Vec<Outcome> {
        self.publishes.fetch_add(1, Ordering::Relaxed);
        match self.up.load(Ordering::Relaxed) {
            true => vec![Outcome::Accepted],
            false => vec![Outcome::retry("connection refused")],
        }
    }

    async fn ready(&self) -> Result<(), String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.up.load(Ordering::Relaxed) || self.says_ready.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("connection refused".into()),
        }
    }
}

const BREAKER: BreakerConfig =
    BreakerConfig { failures: 5, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(8) };

async fn outage(sink: &Switched, hours: u64) -> MemoryStore {
    let store = MemoryStore::new();
    for _ in 0..200 {
        enqueue(&store, message("order.placed")).await;
    }
    let builder = Dispatcher::builder(store.clone(), sink.clone()).max_attempts(3).concurrency(1).breaker(BREAKER);
    let running = Running::start(builder.backoff(Duration::from_secs(1), Duration::from_secs(10)));
    tokio::time::sleep(Duration::from_secs(hours * 3600)).await;
    sink.up.store(true, Ordering::Relaxed);
    until("the backlog is delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
    store
}

#[tokio::test(start_paused = true)]
async fn s3_40_an_outage_spends_no_attempts_of_the_backlog_and_the_sink_is_asked_at_the_breakers_pace() {
    let sink = Switched::default();
    let store = outage(&sink, 2).await;
    let spent: i32 = store.enqueued().iter().map(|row| row.attempts - 1).sum();
    assert!(spent <= 5, "{spent} attempts were spent");
    let (published, asked) = (sink.publishes.load(Ordering::Relaxed), sink.asked.load(Ordering::Relaxed));
    assert!(published <= 200 + 6, "{published} publishes for 200 messages");
    assert!((7200 / 8 - 10..7200 / 8 + 10).contains(&asked), "asked {asked} times in two hours");
}

#[tokio::test(start_paused = true)]
async fn without_a_readiness_check_one_message_at_a_time_is_risked_and_gets_its_attempt_back() {
    let sink = Switched::default();
    sink.says_ready.store(true, Ordering::Relaxed);
    let store = outage(&sink, 1).await;
    let spent: i32 = store.enqueued().iter().map(|row| row.attempts - 1).sum();
    assert!(spent <= 5, "{spent} attempts were spent");
    let published = sink.publishes.load(Ordering::Relaxed);
    assert!(published < 200 + 3600 / 8 + 20, "{published} publishes: a retry storm");
}

#[tokio::test(start_paused = true)]
async fn one_poisoned_message_does_not_open_the_breaker_and_dies_on_its_own() {
    let store = MemoryStore::new();
    let sink = crate::scene::Recorder::answering(|_| Outcome::retry("poison"));
    let poison = enqueue(&store, message("order.placed")).await;
    let builder = Dispatcher::builder(store.clone(), sink).max_attempts(10).breaker(BREAKER);
    let running = Running::start(builder.backoff(Duration::from_millis(10), Duration::from_millis(20)));
    until("it is dead", || crate::scene::row(&store, poison).status == State::Dead).await;
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_hand_is_given_back_as_soon_as_the_breaker_opens() {
    let store = MemoryStore::new();
    for _ in 0..200 {
        enqueue(&store, message("order.placed")).await;
    }
    let sink = Switched::default();
    let builder = Dispatcher::builder(store.clone(), sink.clone()).breaker(BREAKER).lease(Duration::from_secs(3600));
    let running = Running::start(builder.batch_size(100).max_rows(100).concurrency(1));
    let begun = tokio::time::Instant::now();
    until("the sink was found down", || sink.publishes.load(Ordering::Relaxed) >= 5).await;
    until("nothing is held", || store.enqueued().iter().all(|row| row.status == State::Pending)).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "rows were held for {:?}", begun.elapsed());
    sink.up.store(true, Ordering::Relaxed);
    until("the backlog is delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_cannot_be_sent_do_not_make_an_outage_cost_attempts() {
    let store = MemoryStore::new();
    for _ in 0..50 {
        enqueue(&store, message("order.placed")).await;
        enqueue(&store, message("bad")).await;
    }
    let sink = crate::scene::Recorder::answering(|message| match message.topic.as_str() {
        "bad" => Outcome::Unsendable("it has no key".into()),
        _ => Outcome::retry("connection refused"),
    });
    let builder = Dispatcher::builder(store.clone(), sink).max_attempts(3).concurrency(1).breaker(BREAKER);
    let running = Running::start(builder.backoff(Duration::from_secs(1), Duration::from_secs(10)));
    let of = |topic: &str| store.enqueued().into_iter().filter(|row| row.topic == topic).collect::<Vec<_>>();
    until("those are dead", || of("bad").iter().all(|row| row.status == State::Dead)).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let _ended = running.stop().await;
    let spent: i32 = of("order.placed").iter().map(|row| row.attempts).sum();
    assert!(spent <= 5, "{spent} attempts were spent");
}

/// Down at first, and panics when it is asked whether it is ready.
#[derive(Clone, Default)]
struct PanicsWhenAsked(Switched);

#[async_trait::async_trait]
impl Sink for PanicsWhenAsked {
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        self.0.publish(batch).await
    }

    async fn ready(&self) -> Result<(), String> {
        assert!(self.0.up.load(Ordering::Relaxed), "asked too early");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn r29_a_sink_that_panics_when_it_is_asked_is_not_ready() {
    let store = MemoryStore::new();
    for _ in 0..20 {
        enqueue(&store, message("order.placed")).await;
    }
    let sink = PanicsWhenAsked::default();
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()).breaker(BREAKER));
    tokio::time::sleep(Duration::from_secs(60)).await;
    sink.0.up.store(true, Ordering::Relaxed);
    until("the backlog is delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
}
