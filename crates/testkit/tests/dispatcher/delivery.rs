//! From the commit to the sink.

use std::collections::HashSet;
use std::time::Duration;

use postrider::state::State;
use postrider::{Dispatcher, MemoryStore, Outcome, PublishError, Scope, callback};
use testkit::eventually;
use tokio::sync::mpsc;

use crate::scene::{OnPostgres, Recorder, Running, enqueue, message, row, until};

#[tokio::test(start_paused = true)]
async fn s0_66_s0_68_a_callback_that_says_ok_delivers_once() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed")).await;
    let (sent, mut seen) = mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let sent = sent.clone();
        async move { sent.send(message.id).map_err(|_| PublishError::retry("nobody listens")) }
    });
    let running = Running::start(Dispatcher::builder(store.clone(), sink));
    assert_eq!(seen.recv().await, Some(id));
    until("the row is delivered", || row(&store, id).status == State::Delivered).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(seen.try_recv().is_err(), "it was sent again");
    assert_eq!(running.stop().await.abandoned, 0);
}

#[tokio::test]
async fn s0_3_an_enqueue_does_not_wait_for_a_sink_that_hangs() {
    let scene = OnPostgres::new().await;
    let (called, mut calls) = mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let _ = called.send(message.id);
        std::future::pending::<Result<(), PublishError>>()
    });
    let running = Running::start(scene.dispatcher(sink).concurrency(1).shutdown_grace(Duration::from_millis(10)));
    let first = scene.enqueue(message("order.placed")).await.id();
    assert_eq!(calls.recv().await, Some(first), "the sink is called, and never answers");
    let more = async {
        for _ in 0..20 {
            assert!(scene.enqueue(message("order.placed")).await.is_new());
        }
    };
    tokio::time::timeout(Duration::from_secs(120), more).await.expect("producers wait for nobody");
    assert_eq!(scene.count("delivered").await, 0);
    assert_eq!(running.stop().await.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn s0_17_a_dispatcher_takes_only_what_is_in_its_scope() {
    let store = MemoryStore::new();
    let ours = enqueue(&store, message("order.placed")).await;
    let theirs = enqueue(&store, postrider::Message::json("billing", "paid", &1)).await;
    let sink = Recorder::accepting();
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()).scope(Scope::namespace("shop")));
    until("ours is delivered", || row(&store, ours).status == State::Delivered).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(row(&store, theirs).status, State::Pending);
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_message_arrives_at_its_time_and_not_at_the_next_poll() {
    let store = MemoryStore::new();
    let sink = Recorder::accepting();
    let builder = Dispatcher::builder(store.clone(), sink.clone());
    let running = Running::start(builder.lease(Duration::from_secs(300)).poll_interval(Duration::from_secs(100)));
    let begun = tokio::time::Instant::now();
    enqueue(&store, message("reminder").deliver_after(Duration::from_secs(7))).await;
    until("it arrives", || !sink.arrivals().is_empty()).await;
    let late = sink.arrivals()[0].at.duration_since(begun);
    assert!(late >= Duration::from_secs(7) && late < Duration::from_millis(7_200), "{late:?}");
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_with_batches_gets_batches_and_one_outcome_counts_per_message() {
    let store = MemoryStore::new();
    for _ in 0..20 {
        enqueue(&store, message("good")).await;
    }
    let bad = enqueue(&store, message("bad")).await;
    let sink = Recorder::answering(|message| match message.topic.as_str() {
        "bad" => Outcome::Reject("no".into()),
        _ => Outcome::Duplicate,
    });
    let running = Running::start(Dispatcher::builder(store.clone(), sink.in_batches(8)));
    until("all are settled", || store.enqueued().iter().all(|row| row.delivered_at_micros.is_some() || row.id == bad))
        .await;
    until("the bad one is dead", || row(&store, bad).status == State::Dead).await;
    let _ended = running.stop().await;
}

#[tokio::test]
async fn s0_65_s0_90_three_dispatchers_deliver_everything_once_on_postgres() {
    let scene = OnPostgres::new().await;
    let mut transaction = scene.pool.begin().await.expect("a transaction begins");
    let messages = (0..3_000).map(|_| message("order.placed"));
    let sent: HashSet<_> = scene
        .store
        .outbox()
        .enqueue_many(&mut transaction, messages)
        .await
        .expect("good messages")
        .iter()
        .map(postrider::Enqueued::id)
        .collect();
    transaction.commit().await.expect("it commits");
    let sink = Recorder::accepting();
    let running: Vec<_> = (0..3).map(|_| Running::start(scene.dispatcher(sink.clone()).batch_size(100))).collect();
    eventually(Duration::from_secs(120), || async { scene.count("delivered").await == 3_000 }).await;
    for dispatcher in running {
        assert_eq!(dispatcher.stop().await.abandoned, 0);
    }
    let arrived: Vec<_> = sink.arrivals().iter().map(|arrival| arrival.id).collect();
    assert_eq!(arrived.len(), 3_000);
    assert_eq!(arrived.into_iter().collect::<HashSet<_>>(), sent);
}

#[tokio::test]
async fn the_pool_can_be_closed_when_the_dispatcher_has_ended() {
    let scene = OnPostgres::new().await;
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()));
    let _new = scene.enqueue(message("order.placed")).await;
    eventually(Duration::from_secs(120), || async { scene.count("delivered").await == 1 }).await;
    let _ended = running.stop().await;
    tokio::time::timeout(Duration::from_secs(120), scene.pool.close()).await.expect("the pool closes");
}

#[test]
fn a_store_may_be_dropped_after_its_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let scene = runtime.block_on(async {
        let scene = OnPostgres::new().await;
        let stats = postrider::Store::stats(&scene.store, &Scope::all()).await.expect("the store answers");
        assert_eq!(stats.pending, 0);
        scene
    });
    drop(runtime);
    drop(scene);
}
