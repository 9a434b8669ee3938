//! A dispatcher on SQLite delivers, and takes over from who died.

use std::time::Duration;

use postrider::store::{Delivered, Scope};
use postrider::{Settled, Store, StoreErrorKind};
use testkit::{eventually, quickly};
use tokio::time::{Instant, timeout};

use super::scene::{OnFile, Running, claim, message, request};

const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_dispatcher_delivers_what_was_inserted_by_plain_sql() {
    let scene = OnFile::new().await;
    let insert = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 2000)
        insert into outbox_messages (namespace, topic, payload) select 'shop', 'order.placed', n from numbers";
    sqlx::query(insert).execute(scene.store.pool()).await.expect("plain inserts");
    let relay = Running::start(scene.store.clone(), |builder| builder);
    eventually(SOON, || async { relay.count() == 2_000 }).await;
    relay.stop().await;
    let stats = scene.store.stats(&Scope::all()).await.expect("it counts");
    assert_eq!((stats.pending, stats.processing, stats.dead), (0, 0, 0));
}

#[tokio::test]
async fn leases_shorter_than_a_second_expire_and_are_claimed_again() {
    // Soon after their end, and not a second later.
    quickly(Duration::from_secs(1), a_short_lease).await;
}

async fn a_short_lease() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let lease = Duration::from_millis(200);
    let (begun, first) = (Instant::now(), claim(&scene.store, lease).await);
    assert_eq!(first.len(), 1);
    let mut second = Vec::new();
    while second.is_empty() && begun.elapsed() < SOON {
        second = claim(&scene.store, lease).await;
    }
    assert!(begun.elapsed() >= lease, "not before its end: {:?}", begun.elapsed());
    let late = scene.store.ack(&[first[0].lease], Delivered::Keep).await.expect("it is answered");
    assert_eq!(late, [Settled::LeaseLost]);
}

/// SQLite has one writer at a time: a claim that finds nothing must not take its place.
#[tokio::test]
async fn idle_relays_do_not_wait_for_a_writer_nor_keep_one_waiting() {
    let scene = OnFile::new().await;
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    quickly(Duration::from_secs(4), || async {
        for _ in 0..10 {
            assert_eq!(claim(&scene.store, SOON).await.len(), 0);
            scene.store.sweep(&Scope::all(), 10, 100).await.expect("it sweeps");
            scene.store.next_due(&Scope::all()).await.expect("it answers");
            scene.store.stats(&Scope::all()).await.expect("it counts");
        }
    })
    .await;
    held.rollback().await.expect("it rolls back");
}

#[tokio::test]
async fn a_claim_waits_for_a_writer_beyond_the_busy_time_out() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let options = (*scene.store.pool().connect_options()).clone().busy_timeout(Duration::ZERO);
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(4).connect_with(options).await.expect("it opens");
    let impatient = postrider::SqliteStore::new(pool, Default::default());
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let claiming = tokio::spawn(async move { claim(&impatient, SOON).await.len() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!claiming.is_finished());
    held.rollback().await.expect("it rolls back");
    assert_eq!(claiming.await.expect("it does not panic"), 1);
}

#[tokio::test]
async fn a_writer_that_never_ends_is_a_conflict_that_says_so() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let error = scene.store.claim(&super::scene::request(SOON)).await.expect_err("it cannot claim");
    assert_eq!(error.kind(), StoreErrorKind::Conflict);
    assert!(error.to_string().contains("write lock"), "{error}");
    held.rollback().await.expect("it rolls back");
}

#[tokio::test]
async fn a_lease_without_an_address_is_found_by_its_id() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    scene.put(message()).await;
    let claimed = claim(&scene.store, SOON).await;
    let unknown = postrider::Lease { address: Default::default(), ..claimed[0].lease };
    let wrong = postrider::Lease { address: claimed[0].lease.address, ..claimed[1].lease };
    let renewed = scene.store.extend(&[unknown, wrong], SOON).await.expect("they are ours");
    assert_eq!(renewed, [Some(claimed[0].lease), Some(claimed[1].lease)]);
    let done = scene.store.ack(&[unknown, wrong], Delivered::Delete).await.expect("they are ours");
    assert_eq!(done, [Settled::Done, Settled::Done]);
}

#[tokio::test]
async fn a_batch_larger_than_the_longest_statement_settles_as_one() {
    let scene = OnFile::new().await;
    let insert = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 2600)
        insert into outbox_messages (namespace, topic, payload) select 'shop', 'order.placed', n from numbers";
    sqlx::query(insert).execute(scene.store.pool()).await.expect("plain inserts");
    let mut leases = Vec::new();
    for _ in 0..3 {
        let request = postrider::store::ClaimRequest { limit: 1_000, ..super::scene::request(SOON) };
        let messages = scene.store.claim(&request).await.expect("it claims").messages;
        leases.extend(messages.iter().map(|message| message.lease));
    }
    assert_eq!(leases.len(), 2_600);
    let done = scene.store.ack(&leases, Delivered::Keep).await.expect("they are ours");
    assert!(done.iter().all(|settled| *settled == Settled::Done));
    assert_eq!(scene.store.stats(&Scope::all()).await.expect("it counts").processing, 0);
}

#[cfg(target_os = "linux")]
/// How many connections this process has open on the file.
fn connections(scene: &OnFile) -> usize {
    let file = scene.file("outbox.db");
    let open = std::fs::read_dir("/proc/self/fd").expect("the process's files");
    open.filter(|entry| entry.as_ref().is_ok_and(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == file)))
        .count()
}

/// A begin that waits for the write lock has a thread of its own, which goes on waiting when the caller gives up.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_waiting_for_the_write_lock_leave_no_threads_behind() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    assert!(timeout(Duration::from_millis(50), scene.store.claim(&request(SOON))).await.is_err());
    let before = connections(&scene);
    for _ in 0..40 {
        assert!(timeout(Duration::from_millis(25), scene.store.claim(&request(SOON))).await.is_err());
    }
    let after = connections(&scene);
    assert!(after <= before + 1, "{before} connections, and then {after}");
    held.rollback().await.expect("it rolls back");
    let claimed = timeout(SOON, claim(&scene.store, SOON)).await.expect("nobody who gave up is in the way");
    assert_eq!(claimed.len(), 1);
}

/// A dispatcher waits ten seconds for a verb; the text should come before that.
#[tokio::test]
async fn who_waits_too_long_for_the_write_lock_is_told_so_before_a_dispatcher_gives_up() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let request = request(SOON);
    quickly(Duration::from_millis(9_500), || async {
        for claim in futures::future::join_all([scene.store.claim(&request), scene.store.claim(&request)]).await {
            let error = claim.expect_err("the lock is held");
            assert_eq!(error.kind(), StoreErrorKind::Conflict);
            assert!(error.to_string().contains("holds the write lock for too long"), "{error}");
        }
    })
    .await;
    held.rollback().await.expect("it rolls back");
}
