//! One hot lane among others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Dispatcher, Message, Scope};
use tempfile::TempDir;
use testkit::{MariaDb, Postgres, Source, eventually};
use uuid::Uuid;

use crate::scene::{OnPostgres, Recorder, Running};

const SMALL_TENANTS: u128 = 20;
const HOT_TENANT: Uuid = Uuid::from_u128(1_000);

fn hot() -> Message {
    Message::json("shop", "bulk", &1).tenant(HOT_TENANT)
}

fn small(tenant: u128) -> Message {
    Message::json("shop", "order", &1).tenant(Uuid::from_u128(tenant + 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_hot_tenant_does_not_starve_the_others() {
    const HOT: usize = 30_000;
    let scene = OnPostgres::new().await;
    let outbox = scene.store.outbox();
    let mut transaction = scene.pool.begin().await.expect("a transaction begins");
    for _ in 0..HOT / 1_000 {
        outbox.enqueue_many(&mut transaction, (0..1_000).map(|_| hot())).await.expect("good messages");
    }
    transaction.commit().await.expect("it commits");
    let mut ids = Vec::new();
    for tenant in 0..SMALL_TENANTS {
        ids.push(scene.enqueue(small(tenant)).await.id());
    }
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()).scope(Scope::namespace("shop")));
    eventually(Duration::from_secs(120), || async { scene.count("delivered").await >= 20 }).await;
    eventually(Duration::from_secs(120), || async {
        let arrivals = sink.arrivals();
        ids.iter().all(|id| arrivals.iter().any(|arrival| arrival.id == *id))
    })
    .await;
    let arrivals = sink.arrivals();
    let last = arrivals.iter().rposition(|arrival| ids.contains(&arrival.id)).expect("they arrived");
    assert!(last < HOT / 4, "the last of the small tenants' messages came after {last} others");
    let _ended = running.stop().await;
}

const CALL: Duration = Duration::from_millis(50);
const BATCH: u32 = 200;
/// What the dispatcher has in hand: four batches at most.
const HAND: usize = 4 * BATCH as usize;

/// A hot tenant's backlog waits, and small tenants enqueue now and then while a sink of bounded speed works on it. Nobody of
/// them waits for more messages than the dispatcher has in hand, which does not depend on the backlog. It is counted and
/// not measured, because time passes on a busy machine whether or not anybody is served.
async fn small_tenants_wait_for_the_hand_only(source: Source, backlog: usize) {
    source.prepare().await.expect("the migrations run");
    for _ in 0..backlog / 1_000 {
        source.commit((0..1_000).map(|_| hot()).collect()).await.expect("they are written");
    }
    let sink = Recorder::accepting().slow(CALL);
    let dispatcher =
        Dispatcher::builder_shared(source.store(), Arc::new(sink.clone())).batch_size(BATCH).concurrency(20);
    let running = Running::start(dispatcher);
    let served = async |count: usize| {
        eventually(Duration::from_secs(120), || async { sink.arrivals().len() >= count }).await;
        sink.arrivals().len()
    };
    let mut before = served(400).await;
    let mut enqueued = HashMap::new();
    for round in 0..60 {
        let message = small(round % SMALL_TENANTS);
        let id = message.id();
        source.commit(vec![message]).await.expect("it is written");
        enqueued.insert(id, sink.arrivals().len());
        before = served(before + 40).await;
    }
    let all_arrived = || async {
        let arrivals = sink.arrivals();
        arrivals.iter().filter(|arrival| enqueued.contains_key(&arrival.id)).count() >= enqueued.len()
    };
    eventually(Duration::from_secs(120), all_arrived).await;
    let arrivals = sink.arrivals();
    let _ended = running.stop().await;
    assert!(arrivals.len() < backlog / 2, "the backlog was gone too early to show anything: {}", arrivals.len());
    let places = arrivals.iter().enumerate();
    let waited = places.filter_map(|(place, arrival)| Some(place.saturating_sub(*enqueued.get(&arrival.id)?)));
    let mut waited: Vec<usize> = waited.collect();
    waited.sort_unstable();
    let (median, worst) = (waited[waited.len() / 2], waited[waited.len() - 1]);
    println!("backlog {backlog}: median {median}, worst {worst}, bound {HAND}");
    assert!(
        worst <= HAND,
        "{worst} others came before a small tenant's message, {median} before half of them; the bound is {HAND}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_small_tenants_do_not_wait_for_a_hot_one_s_backlog_on_postgres() {
    let database = Postgres::shared().await.expect("a server").create_database().await.expect("a database");
    let source = Source::connect(&database.url(), "test", 6).await.expect("it answers");
    small_tenants_wait_for_the_hand_only(source, 100_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_small_tenants_do_not_wait_for_a_hot_one_s_backlog_on_mariadb() {
    let database = MariaDb::shared().await.expect("a server").create_database().await.expect("a database");
    let source = Source::connect(&database.url(), "test", 6).await.expect("it answers");
    small_tenants_wait_for_the_hand_only(source, 20_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_small_tenants_do_not_wait_for_a_hot_one_s_backlog_on_sqlite() {
    let directory = TempDir::new().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("outbox.db").display());
    let source = Source::connect(&url, "test", 6).await.expect("it opens");
    small_tenants_wait_for_the_hand_only(source, 20_000).await;
}
