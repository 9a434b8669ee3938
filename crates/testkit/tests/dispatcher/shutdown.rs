//! Stopping.

use std::time::Duration;

use postrider::state::State;
use postrider::{Dispatcher, MemoryStore};

use crate::scene::{Recorder, Running, enqueue, message, until};

#[tokio::test(start_paused = true)]
async fn r27_a_stop_waits_for_what_is_under_way_and_gives_the_rest_back_with_its_attempts() {
    let store = MemoryStore::new();
    for _ in 0..20 {
        enqueue(&store, message("order.placed")).await;
    }
    let sink = Recorder::accepting().slow(Duration::from_secs(2));
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()).concurrency(3));
    until("three are under way", || sink.arrivals().len() == 3).await;
    assert_eq!(running.stop().await.abandoned, 0);
    let rows = store.enqueued();
    let delivered: Vec<_> = rows.iter().filter(|row| row.status == State::Delivered).collect();
    let waiting: Vec<_> = rows.iter().filter(|row| row.status == State::Pending).collect();
    assert_eq!((delivered.len(), waiting.len()), (3, 17));
    assert!(waiting.iter().all(|row| row.attempts == 0 && row.locked_by.is_none()));
}

#[tokio::test(start_paused = true)]
async fn r28_a_hung_sink_does_not_hold_a_stop_beyond_its_grace() {
    let store = MemoryStore::new();
    for _ in 0..5 {
        enqueue(&store, message("order.placed")).await;
    }
    let sink = Recorder::accepting().slow(Duration::from_secs(1_000_000));
    let builder = Dispatcher::builder(store.clone(), sink.clone()).publish_timeout(Duration::from_secs(900_000));
    let running = Running::start(builder.concurrency(2).shutdown_grace(Duration::from_secs(10)));
    until("two are under way", || sink.arrivals().len() == 2).await;
    let asked = tokio::time::Instant::now();
    assert_eq!(running.stop().await.abandoned, 2);
    assert!(asked.elapsed() < Duration::from_secs(11));
    let rows = store.enqueued();
    assert_eq!(rows.iter().filter(|row| row.status == State::Processing).count(), 2, "left to their leases");
    assert_eq!(rows.iter().filter(|row| row.status == State::Pending && row.attempts == 0).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_with_nothing_to_do_stops_at_once() {
    let running = Running::start(Dispatcher::builder(MemoryStore::new(), Recorder::accepting()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = tokio::time::Instant::now();
    assert_eq!(running.stop().await.abandoned, 0);
    assert!(asked.elapsed() < Duration::from_millis(100));
}
