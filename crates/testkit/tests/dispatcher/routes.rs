//! A dispatcher whose sink leads to several others.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::state::State;
use postrider::{BreakerConfig, Dispatcher, MemoryStore, Route, Router};

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
