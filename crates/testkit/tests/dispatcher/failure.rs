//! What a sink can do wrong, and what becomes of the message.

use std::sync::Arc;
use std::time::Duration;

use postrider::state::State;
use postrider::{ClaimedMessage, Dispatcher, MemoryStore, Outcome, Sink};

use crate::scene::{Recorder, Running, enqueue, message, row, until};

/// Without jitter: a random number of 1 makes the delay the full one.
fn certain() -> postrider::retry::Randomness {
    Arc::new(|| 1.0)
}

#[tokio::test(start_paused = true)]
async fn s0_69_s0_77_s0_92_failures_are_retried_by_the_formula_and_then_the_message_dies() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed")).await;
    let sink = Recorder::answering(|_| Outcome::retry("no route"));
    let builder = Dispatcher::builder(store.clone(), sink.clone()).max_attempts(4).randomness(certain());
    let running = Running::start(builder.backoff(Duration::from_secs(1), Duration::from_secs(3)));
    until("it is dead", || row(&store, id).status == State::Dead).await;
    let arrivals = sink.arrivals();
    assert_eq!(arrivals.iter().map(|arrival| arrival.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let gaps = arrivals.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_secs_f64());
    for (gap, expected) in gaps.zip([1.0, 2.0, 3.0]) {
        assert!((expected..expected + 0.1).contains(&gap), "waited {gap} s instead of {expected} s");
    }
    let dead = row(&store, id);
    assert_eq!((dead.last_error.as_deref(), dead.attempts), (Some("no route"), 4));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(sink.arrivals().len(), 4, "s0_86: a dead message was tried again");
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_beyond_the_policys_maximum_and_new_traffic_does_not_shorten_it() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("throttled")).await;
    let after = Duration::from_secs(1_000);
    let sink = Recorder::answering(move |message| match message.topic.as_str() {
        "throttled" => Outcome::Retry { after: Some(after), why: "slow down".into() },
        _ => Outcome::Accepted,
    });
    let builder = Dispatcher::builder(store.clone(), sink.clone()).randomness(Arc::new(|| 0.0));
    let running = Running::start(builder.backoff(Duration::from_secs(1), Duration::from_secs(2)));
    until("it was tried", || row(&store, id).last_error.is_some()).await;
    for _ in 0..100 {
        enqueue(&store, message("other")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    until("it was tried again", || row(&store, id).attempts == 2).await;
    let tries: Vec<_> = sink.arrivals().into_iter().filter(|arrival| arrival.id == id).collect();
    assert!(tries[1].at.duration_since(tries[0].at) >= after);
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_dead_at_once_and_says_why() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed")).await;
    let running = Running::start(Dispatcher::builder(
        store.clone(),
        Recorder::answering(|_| Outcome::Reject("too large".into())),
    ));
    until("it is dead", || row(&store, id).status == State::Dead).await;
    assert_eq!((row(&store, id).attempts, row(&store, id).last_error.as_deref()), (1, Some("too large")));
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_takes_too_long_is_unknown_and_tried_again() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed")).await;
    let sink = Recorder::accepting().slow(Duration::from_secs(3600));
    let builder = Dispatcher::builder(store.clone(), sink.clone()).publish_timeout(Duration::from_secs(5));
    let running = Running::start(builder.max_attempts(2));
    until("it is dead", || row(&store, id).status == State::Dead).await;
    let error = row(&store, id).last_error.expect("it says why");
    assert!(error.contains("did not answer within 5s"), "{error}");
    assert_eq!(sink.arrivals().len(), 2);
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_has_its_own_number_of_attempts() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed").max_attempts(1)).await;
    let running = Running::start(Dispatcher::builder(store.clone(), Recorder::answering(|_| Outcome::retry("no"))));
    until("it is dead", || row(&store, id).status == State::Dead).await;
    assert_eq!(row(&store, id).attempts, 1);
    let _ended = running.stop().await;
}

/// Panics on one topic, whatever else is in the batch.
struct Panicking;

#[async_trait::async_trait]
impl Sink for Panicking {
    fn max_batch(&self) -> usize {
        10
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        assert!(batch.iter().all(|message| message.topic != "poison"), "secret 4711");
        vec![Outcome::Accepted; batch.len()]
    }
}

#[tokio::test(start_paused = true)]
async fn r29_a_panic_fails_its_message_alone_and_its_text_is_not_kept() {
    let store = MemoryStore::new();
    let mut good = Vec::new();
    for _ in 0..9 {
        good.push(enqueue(&store, message("good")).await);
    }
    let poison = enqueue(&store, message("poison")).await;
    let running = Running::start(Dispatcher::builder(store.clone(), Panicking).max_attempts(2));
    until("the neighbours are delivered", || good.iter().all(|id| row(&store, *id).status == State::Delivered)).await;
    assert!(good.iter().all(|id| row(&store, *id).attempts == 1));
    until("the poison is dead", || row(&store, poison).status == State::Dead).await;
    let error = row(&store, poison).last_error.expect("it says why");
    assert!(error.contains("panicked") && !error.contains("4711"), "{error}");
    let later = enqueue(&store, message("good")).await;
    until("the dispatcher goes on", || row(&store, later).status == State::Delivered).await;
    let _ended = running.stop().await;
}

/// Forgets the last message of every batch.
struct Forgetful;

#[async_trait::async_trait]
impl Sink for Forgetful {
    fn max_batch(&self) -> usize {
        3
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        vec![Outcome::Accepted; batch.len() - 1]
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_outcome_does_not_count_as_delivered() {
    let store = MemoryStore::new();
    for _ in 0..3 {
        enqueue(&store, message("order.placed")).await;
    }
    let running = Running::start(Dispatcher::builder(store.clone(), Forgetful).max_attempts(1));
    until("all are settled", || store.enqueued().iter().all(|row| row.locked_by.is_none() && row.attempts > 0)).await;
    let dead: Vec<_> = store.enqueued().into_iter().filter(|row| row.status == State::Dead).collect();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].last_error.as_deref().is_some_and(|error| error.contains("no outcome")));
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn t22_a_dispatcher_that_cannot_go_on_ends_loudly_instead_of_idling() {
    let store = MemoryStore::new();
    enqueue(&store, message("order.placed")).await;
    let sink = Recorder::answering(|_| Outcome::retry("no"));
    let broken: postrider::retry::Randomness = Arc::new(|| panic!("no chance"));
    let dispatcher = Dispatcher::builder(store, sink).randomness(broken).build().expect("the settings agree");
    let running = tokio::spawn(dispatcher.run(tokio_util::sync::CancellationToken::new()));
    let ended = tokio::time::timeout(Duration::from_secs(120), running).await.expect("it ends by itself");
    assert!(ended.is_err_and(|error| error.is_panic()), "it ended as if all were well");
}
