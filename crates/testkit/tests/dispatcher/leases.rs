//! Leases: renewed while a publish is slow, given back when a row waits too long.

use std::time::Duration;

use postrider::state::State;
use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, Order, Store};
use postrider::{Dispatcher, MemoryStore, Names, PostgresStore, Scope};
use uuid::Uuid;

use crate::scene::{OnPostgres, Recorder, Running, enqueue, message, row, until};

pub(crate) fn steal(limit: u32, lease: Duration) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::from_u128(7),
        limit,
        max_bytes: u64::MAX,
        lease,
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_longer_than_its_lease_is_renewed_and_delivered_once() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("slow")).await;
    let sink = Recorder::accepting().slow(Duration::from_secs(100));
    let builder = Dispatcher::builder(store.clone(), sink.clone()).lease(Duration::from_secs(3));
    let running = Running::start(builder.publish_timeout(Duration::from_secs(200)));
    until("it is delivered", || row(&store, id).status == State::Delivered).await;
    assert_eq!((sink.arrivals().len(), row(&store, id).attempts), (1, 1));
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r17_a_batch_longer_than_its_lease_gives_its_tail_back_without_spending_attempts() {
    let store = MemoryStore::new();
    for _ in 0..10 {
        enqueue(&store, message("slow")).await;
    }
    let lease = Duration::from_secs(2);
    let sink = Recorder::accepting().slow(lease / 2);
    let builder = Dispatcher::builder(store.clone(), sink.clone()).lease(lease).concurrency(1);
    let running = Running::start(builder.batch_size(10).poll_interval(Duration::from_millis(100)));
    until("all are delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
    assert_eq!(sink.arrivals().len(), 10, "something was published twice");
    assert!(store.enqueued().iter().all(|row| row.attempts == 1), "an attempt was spent on waiting");
}

#[tokio::test(start_paused = true)]
async fn r11_a_lost_lease_is_not_nacked_and_the_new_owner_keeps_the_row() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("slow")).await;
    let sink = Recorder::accepting().slow(Duration::from_secs(1));
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()));
    until("it is under way", || sink.arrivals().len() == 1).await;
    // Somebody took the row: as if this worker had been frozen past its lease.
    store.edit(id, |row| row.locked_until_micros = Some(0));
    let stolen = store.claim(&steal(1, Duration::from_secs(600))).await.expect("a claim");
    assert_eq!(stolen.messages.len(), 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let kept = row(&store, id);
    assert_eq!((kept.status, kept.locked_by, kept.attempts), (State::Processing, Some(Uuid::from_u128(7)), 2));
    assert_eq!(kept.last_error, None, "a stale settle became a nack");
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r20_a_row_whose_last_attempt_died_with_its_worker_is_buried_by_the_sweep() {
    let store = MemoryStore::new();
    let id = enqueue(&store, message("order.placed").max_attempts(1)).await;
    let lost = store.claim(&steal(1, Duration::from_secs(5))).await.expect("a claim");
    assert_eq!(lost.messages.len(), 1);
    let sink = Recorder::accepting();
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()));
    until("it is dead", || row(&store, id).status == State::Dead).await;
    assert!(row(&store, id).last_error.is_some_and(|error| error.contains("delivery unknown")));
    assert!(sink.arrivals().is_empty());
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r21_a_row_that_workers_died_on_is_published_with_nothing_else_under_way() {
    let store = MemoryStore::new();
    let mut suspects = Vec::new();
    for _ in 0..3 {
        suspects.push(enqueue(&store, message("suspect")).await);
    }
    for _ in 0..2 {
        let claimed = store.claim(&steal(3, Duration::from_secs(1))).await.expect("a claim");
        assert_eq!(claimed.messages.len(), 3);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for _ in 0..50 {
        enqueue(&store, message("fresh")).await;
    }
    let delay = Duration::from_millis(300);
    let sink = Recorder::accepting().slow(delay);
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()));
    until("all are delivered", || store.enqueued().iter().all(|row| row.status == State::Delivered)).await;
    let _ended = running.stop().await;
    let arrivals = sink.arrivals();
    for suspect in arrivals.iter().filter(|arrival| arrival.topic == "suspect") {
        let together = arrivals.iter().filter(|other| {
            let (first, last) = (suspect.at.min(other.at), suspect.at.max(other.at));
            other.id != suspect.id && last.duration_since(first) < delay
        });
        assert_eq!(together.count(), 0, "a suspect was published beside others");
    }
}

/// A server whose clock differs from the worker's: `now()` is looked up in a schema of ours before it is in PostgreSQL's own.
async fn with_clock_off_by(hours: i32) -> OnPostgres {
    let scene = OnPostgres::new().await;
    let sql = format!(
        "create schema skewed;
         create function skewed.now() returns timestamptz language sql stable
           as $$ select pg_catalog.now() + {hours} * interval '1 hour' $$;
         do $$ begin
           execute format('alter database %I set search_path = skewed, pg_catalog, public', current_database());
         end $$"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&scene.pool).await.expect("the clock is set");
    let options = scene.pool.connect_options().as_ref().clone();
    let pool = sqlx::PgPool::connect_with(options).await.expect("new connections have the wrong clock");
    OnPostgres { store: PostgresStore::new(pool.clone(), Names::default()), pool }
}

#[tokio::test]
async fn t07_whether_a_lease_ran_out_is_decided_by_the_database_s_clock_though_the_worker_s_is_hours_off() {
    for hours in [2, -2] {
        let scene = with_clock_off_by(hours).await;
        // Due long ago by either clock, so that the lease alone decides.
        let insert = "insert into outbox_messages (namespace, topic, payload, next_attempt_at)
            values ('shop', 'skewed', '{}', pg_catalog.now() - interval '1 day')";
        sqlx::raw_sql(insert).execute(&scene.pool).await.expect("a row");
        let lease = Duration::from_secs(60);
        assert_eq!(scene.store.claim(&steal(1, lease)).await.expect("a claim").messages.len(), 1);
        let taken = scene.store.claim(&steal(1, lease)).await.expect("a claim").messages;
        assert!(taken.is_empty(), "{hours} hours off: a live lease was taken");
        let passed = "update outbox_messages set locked_until = locked_until - interval '61 seconds'";
        sqlx::raw_sql(passed).execute(&scene.pool).await.expect("time passes");
        let taken = scene.store.claim(&steal(1, lease)).await.expect("a claim").messages;
        assert_eq!(taken.len(), 1, "{hours} hours off: an expired lease was left");
    }
}
