//! The doorbell: picked up at once when idle, no ring under load, no ring lost.

use std::time::{Duration, Instant};

use postrider::{Dispatcher, MemoryStore, Message, Scope};
use sqlx::postgres::PgListener;
use testkit::eventually;
use tokio::sync::mpsc;

use crate::scene::{OnPostgres, Recorder, Running, enqueue, message, until};

/// So long that nothing in these tests is found by polling.
const RARELY: Duration = Duration::from_secs(900);
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// Longer than anything takes on a busy machine, and much shorter than what only a poll would find.
const PATIENCE: Duration = Duration::from_secs(120);

/// What keeps a relay busy for longer than a machine stands still.
const BULK: usize = 5_000;

/// Whether a relay sleeps with its bell armed.
async fn asleep(scene: &OnPostgres) -> bool {
    let locks = "select exists (select from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database()))";
    sqlx::query_scalar(locks).fetch_one(&scene.pool).await.expect("pg_locks can be read")
}

#[tokio::test]
async fn an_idle_relay_picks_a_message_up_at_once() {
    let scene = OnPostgres::new().await;
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()).lease(LONG_LEASE).poll_interval(RARELY));
    for expected in 1..=5 {
        eventually(PATIENCE, || asleep(&scene)).await;
        let _new = scene.enqueue(message("order.placed")).await;
        eventually(PATIENCE, || async { sink.arrivals().len() == expected }).await;
    }
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p9_what_was_written_before_a_relay_fell_asleep_wakes_it_at_its_commit() {
    let store = MemoryStore::new();
    let sink = Recorder::accepting();
    let mut transaction = store.begin();
    store.outbox().enqueue(&mut transaction, message("early")).await.expect("a good message");
    let builder = Dispatcher::builder(store.clone(), sink.clone()).lease(LONG_LEASE).poll_interval(RARELY);
    let running = Running::start(builder);
    tokio::time::sleep(RARELY / 4).await;
    assert!(sink.arrivals().is_empty(), "it is not committed yet");
    transaction.commit();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(sink.arrivals().len(), 1, "it was left to the next poll");
    let _ended = running.stop().await;
}

#[tokio::test]
async fn s0_3_a_transaction_that_stays_open_is_delivered_soon_after_its_commit() {
    let scene = OnPostgres::new().await;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let sink = postrider::callback(move |_| {
        let _ = arrived.send(Instant::now());
        async { Ok::<(), postrider::PublishError>(()) }
    });
    let running = Running::start(scene.dispatcher(sink).lease(LONG_LEASE).poll_interval(RARELY));
    let outbox = scene.store.outbox();
    for asleep_first in [true, false] {
        if asleep_first {
            eventually(PATIENCE, || asleep(&scene)).await;
        }
        let mut transaction = scene.pool.begin().await.expect("a transaction begins");
        let _new = outbox.enqueue(&mut transaction, message("order.placed")).await.expect("a good message");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(arrivals.try_recv().is_err(), "delivered before the commit");
        transaction.commit().await.expect("it commits");
        let committed = Instant::now();
        let arrival = arrivals.recv().await.expect("it arrives");
        assert!(arrival.duration_since(committed) < PATIENCE, "it was left to the next poll");
    }
    let _ended = running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wake_up_is_lost_among_transactions_of_all_lengths() {
    let scene = OnPostgres::new().await;
    let sink = Recorder::accepting();
    let relays: Vec<_> = (0..2)
        .map(|_| Running::start(scene.dispatcher(sink.clone()).lease(LONG_LEASE).poll_interval(RARELY)))
        .collect();
    let producers: Vec<_> = (0..6_u64)
        .map(|producer| {
            let (pool, outbox) = (scene.pool.clone(), scene.store.outbox());
            tokio::spawn(async move {
                for turn in 0..15_u64 {
                    let mut transaction = pool.begin().await.expect("a transaction begins");
                    let _new = outbox.enqueue(&mut transaction, message("order.placed")).await.expect("good");
                    tokio::time::sleep(Duration::from_millis((turn * 7 + producer * 13) % 60)).await;
                    transaction.commit().await.expect("it commits");
                    tokio::time::sleep(Duration::from_millis((turn * 11 + producer * 17) % 90)).await;
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.expect("the producer ends");
    }
    // Well before the poll interval: all of them were rung for, or seen by a relay that was awake.
    eventually(PATIENCE, || async { sink.arrivals().len() == 90 }).await;
    for relay in relays {
        let _ended = relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_rings_while_relays_are_busy() {
    let scene = OnPostgres::new().await;
    let mut listener = PgListener::connect_with(&scene.pool).await.expect("a listener");
    listener.listen("postrider").await.expect("it listens");
    let outbox = scene.store.outbox();
    for _ in 0..50 {
        let _new = scene.enqueue(message("order.placed")).await;
    }
    let many = (0..50).map(|_| message("order.placed"));
    let mut transaction = scene.pool.begin().await.expect("a transaction begins");
    outbox.enqueue_many(&mut transaction, many).await.expect("good messages");
    transaction.commit().await.expect("it commits");
    let rung = tokio::time::timeout(Duration::from_millis(500), listener.try_recv()).await;
    assert!(rung.is_err(), "a producer rang although nobody slept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_relay_of_one_namespace_does_not_silence_the_bell_of_another() {
    let scene = OnPostgres::new().await;
    let slow = Recorder::accepting().slow(Duration::from_millis(20));
    let mut transaction = scene.pool.begin().await.expect("a transaction begins");
    let bulk = (0..BULK).map(|_| Message::json("busy", "bulk", &1));
    scene.store.outbox().enqueue_many(&mut transaction, bulk).await.expect("good messages");
    transaction.commit().await.expect("it commits");
    let settings = |sink: Recorder, namespace: &str| {
        let builder = scene.dispatcher(sink).scope(Scope::namespace(namespace)).concurrency(1).batch_size(5);
        builder.lease(LONG_LEASE).poll_interval(RARELY)
    };
    let quiet_sink = Recorder::accepting();
    let quiet = Running::start(settings(quiet_sink.clone(), "quiet"));
    eventually(PATIENCE, || asleep(&scene)).await;
    let busy = Running::start(settings(slow.clone(), "busy"));
    eventually(PATIENCE, || async { slow.arrivals().len() > 5 }).await;
    let _new = scene.enqueue(Message::json("quiet", "order", &1)).await;
    eventually(PATIENCE, || async { quiet_sink.arrivals().len() == 1 }).await;
    assert!(slow.arrivals().len() < BULK, "the busy relay was not busy");
    let _ended = (busy.stop().await, quiet.stop().await);
}

#[tokio::test]
async fn a_plain_insert_is_found_by_the_poll() {
    let scene = OnPostgres::new().await;
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()));
    eventually(PATIENCE, || asleep(&scene)).await;
    sqlx::query("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order', '{}')")
        .execute(&scene.pool)
        .await
        .expect("a plain insert works");
    eventually(PATIENCE, || async { scene.count("delivered").await == 1 }).await;
    let _ended = running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s0_63_a_dispatcher_polls_at_its_own_interval() {
    for interval in [1, 20, 90].map(Duration::from_secs) {
        let (store, sink) = (MemoryStore::new(), Recorder::accepting());
        let later = enqueue(&store, message("reminder").deliver_after(Duration::from_secs(3600))).await;
        let builder = Dispatcher::builder(store.clone(), sink.clone()).lease(LONG_LEASE).poll_interval(interval);
        let running = Running::start(builder);
        // Nothing is due, so that it sleeps; then it becomes due without a ring.
        tokio::time::sleep(interval * 10 + interval / 2).await;
        store.edit(later, |row| row.next_attempt_at_micros = 0);
        let edited = tokio::time::Instant::now();
        until("it arrives", || !sink.arrivals().is_empty()).await;
        let waited = sink.arrivals()[0].at.duration_since(edited);
        assert!(waited > interval / 4 && waited <= interval, "{waited:?} at an interval of {interval:?}");
        let _ended = running.stop().await;
    }
}

#[tokio::test]
async fn r34_a_bell_whose_connection_dies_is_hung_again() {
    let scene = OnPostgres::new().await;
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()).lease(LONG_LEASE).poll_interval(RARELY));
    for expected in 1..=3 {
        eventually(PATIENCE, || asleep(&scene)).await;
        let kill =
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'
            and database = (select oid from pg_database where datname = current_database())";
        sqlx::query(kill).execute(&scene.pool).await.expect("it is terminated");
        eventually(PATIENCE, || asleep(&scene)).await;
        let _new = scene.enqueue(message("order.placed")).await;
        eventually(PATIENCE, || async { sink.arrivals().len() == expected }).await;
    }
    let _ended = running.stop().await;
}
