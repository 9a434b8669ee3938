//! A dispatcher whose sink leads to several others.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::memory::StoredMessage;
use postrider::state::State;
use postrider::{BreakerConfig, Dispatcher, MemoryStore, Outcome, Route, Router};
use tokio::time::Instant;

use crate::scene::{Recorder, Running, enqueue, message, until};

fn router(one: &Recorder, other: &Recorder) -> Router {
    let routes = vec![
        Route::to("one", Arc::new(one.clone())).topic("one"),
        Route::to("other", Arc::new(other.clone())).topic("other"),
    ];
    Router::new(routes, BreakerConfig::default())
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_takes_single_messages_gets_them_singly_beside_one_that_takes_batches() {
    let store = MemoryStore::new();
    for _ in 0..100 {
        enqueue(&store, message("one")).await;
        enqueue(&store, message("other")).await;
    }
    let batches = Recorder::accepting().in_batches(100);
    let singles = Recorder::accepting().slow(Duration::from_secs(1));
    let running = Running::start(Dispatcher::builder(store.clone(), router(&batches, &singles)));
    until("all is delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
    let arrivals = singles.arrivals();
    let different: HashSet<_> = arrivals.iter().map(|arrival| arrival.id).collect();
    assert_eq!((arrivals.len(), different.len()), (100, 100), "each arrived once");
}

#[tokio::test(start_paused = true)]
async fn r58_a_sink_that_is_down_with_a_backlog_in_front_does_not_hold_up_another() {
    let store = MemoryStore::new();
    for _ in 0..2_000 {
        enqueue(&store, message("one")).await;
    }
    for _ in 0..100 {
        enqueue(&store, message("other")).await;
    }
    let (down, up) = (Recorder::answering(|_| Outcome::retry("connection refused")), Recorder::accepting());
    let begun = Instant::now();
    let running = Running::start(Dispatcher::builder(store.clone(), router(&down, &up)));
    let behind = |row: &StoredMessage| row.topic == "one" || row.status == State::Delivered;
    until("the others are delivered", || store.enqueued().iter().all(behind)).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "they waited for {:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(120)).await;
    let spent: i32 = store.enqueued().iter().filter(|row| row.topic == "one").map(|row| row.attempts).sum();
    assert!(spent <= 64, "{spent} attempts were spent on a sink that is known to be down");
    assert!(down.arrivals().len() < 100, "{} publishes to it in two minutes", down.arrivals().len());
    let _ended = running.stop().await;
}
