//! R38: deadlocks and lock time-outs are tried again inside the store for the relay, and told to producers as such.

use std::time::Duration;

use postrider::store::{Bury, Delivered, Nack, Release};
use postrider::{EnqueueError, Lease, Settled, Store};
use testkit::undisturbed;
use tokio::time::{sleep, timeout};

use crate::scene::{LEASE, OnMySql, message, pool_in};

const SOON: Duration = Duration::from_secs(120);

async fn leases(scene: &OnMySql, count: usize) -> Vec<Lease> {
    scene.put((0..count).map(|_| message()).collect()).await;
    scene.claim().await.iter().map(|message| message.lease).collect()
}

/// Runs each settling verb; there are six.
pub async fn settle(store: &impl Store, verb: usize, leases: &[Lease]) -> Vec<bool> {
    let error = || "no".to_owned();
    let done = |settled: Vec<Settled>| settled.into_iter().map(|settled| settled == Settled::Done).collect();
    let delay = Duration::from_secs(3_600);
    match verb {
        0 => done(store.ack(leases, Delivered::Keep).await.expect("acked")),
        1 => done(store.ack(leases, Delivered::Delete).await.expect("acked")),
        2 => {
            let nacks: Vec<_> = leases.iter().map(|lease| Nack { lease: *lease, delay, error: error() }).collect();
            done(store.nack(&nacks).await.expect("nacked"))
        }
        3 => {
            let buries: Vec<_> = leases.iter().map(|lease| Bury { lease: *lease, error: error() }).collect();
            done(store.bury(&buries).await.expect("buried"))
        }
        4 => {
            let release = |lease: &Lease| Release { lease: *lease, delay, error: None };
            done(store.release(&leases.iter().map(release).collect::<Vec<_>>()).await.expect("released"))
        }
        _ => store.extend(leases, LEASE).await.expect("extended").iter().map(Option::is_some).collect(),
    }
}

/// The other transaction changed more, so the database ends the relay's.
#[tokio::test]
async fn r38_a_relay_verb_that_lost_a_deadlock_is_tried_again() {
    for verb in 0..6 {
        let mut tried = 0;
        // The relay waits for a second and begins anew: on a machine that stands still for longer there is no deadlock.
        while !a_deadlock(verb).await {
            tried += 1;
            assert!(tried < 10, "there was no deadlock");
        }
    }
}

/// Answers whether there was one.
async fn a_deadlock(verb: usize) -> bool {
    let scene = OnMySql::new().await;
    let leases = leases(&scene, 2).await;
    scene
        .execute("create table others (number int); insert into others values (1), (2), (3), (4), (5), (6), (7), (8)")
        .await;
    let before = scene.number(DEADLOCKS).await;
    let (low, high) = (leases[0].address.0, leases[1].address.0);
    let mut updater = scene.pool.begin().await.expect("begun");
    let touch =
        |seq: u64| sqlx::AssertSqlSafe(format!("update outbox_messages set last_error = 'x' where seq = {seq}"));
    sqlx::raw_sql("update others set number = number + 1").execute(&mut *updater).await.expect("changed");
    sqlx::raw_sql(touch(high)).execute(&mut *updater).await.expect("changed");
    let (store, ours) = (scene.store.clone(), leases.clone());
    let settling = tokio::spawn(async move { settle(&store, verb, &ours).await });
    // The relay has the first row and waits for the second.
    testkit::eventually(SOON, || async { scene.number(WAITING).await > 0 }).await;
    sqlx::raw_sql(touch(low)).execute(&mut *updater).await.expect("the updater wins");
    updater.commit().await.expect("committed");
    let settled = timeout(SOON, settling).await.expect("it ends").expect("it does not panic");
    assert_eq!(settled, [true, true], "verb {verb}");
    scene.number(DEADLOCKS).await > before
}

/// Statements of others that have been running for a while.
const WAITING: &str = "select count(*) from information_schema.processlist
    where db = database() and id <> connection_id() and command <> 'Sleep' and time_ms > 50";
const DEADLOCKS: &str = "select cast(variable_value as signed) from information_schema.global_status where variable_name = 'innodb_deadlocks'";

#[tokio::test]
async fn r38_a_relay_verb_that_waited_too_long_is_tried_again() {
    // It tries again for some seconds, and not for as long as a machine may stand still.
    for verb in 0..6 {
        undisturbed(Duration::from_secs(3), || a_long_wait(verb)).await;
    }
}

async fn a_long_wait(verb: usize) {
    let scene = OnMySql::new().await;
    let leases = leases(&scene, 2).await;
    let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
    let store = postrider::MySqlStore::new(hasty, postrider::Names::default());
    let mut holder = scene.pool.begin().await.expect("begun");
    let lock = "select 1 from outbox_messages order by seq desc limit 1 for update";
    sqlx::raw_sql(lock).execute(&mut *holder).await.expect("locked");
    let settling = tokio::spawn(async move { settle(&store, verb, &leases).await });
    sleep(Duration::from_millis(1_500)).await;
    holder.rollback().await.expect("rolled back");
    let settled = timeout(SOON, settling).await.expect("it ends").expect("it does not panic");
    assert_eq!(settled, [true, true], "verb {verb}");
}

/// With the server's own time-outs: a row that somebody holds keeps only itself.
#[tokio::test]
async fn g4_a_locked_row_does_not_keep_the_rest_of_its_batch() {
    for verb in 0..6 {
        undisturbed(Duration::from_secs(4), || a_locked_row(verb)).await;
    }
}

async fn a_locked_row(verb: usize) {
    let scene = OnMySql::new().await;
    let leases = leases(&scene, 10).await;
    let claimed_until = "select cast(max(locked_until) as char) from outbox_messages";
    let claimed_until: String = sqlx::query_scalar(claimed_until).fetch_one(&scene.pool).await.expect("a time");
    let mut holder = scene.pool.begin().await.expect("begun");
    let lock = "select 1 from outbox_messages order by seq desc limit 1 for update";
    sqlx::raw_sql(lock).execute(&mut *holder).await.expect("locked");
    let (store, ours) = (scene.store.clone(), leases.clone());
    let settling = tokio::spawn(async move { settle(&store, verb, &ours).await });
    let changed = format!("select count(*) from outbox_messages where locked_until > '{claimed_until}'");
    let unchanged = "select 10 - count(*) from outbox_messages where status = 'processing'".to_owned();
    let changed = if verb == 5 { changed } else { unchanged };
    testkit::eventually(SOON, || async { scene.number(changed.clone()).await == 9 }).await;
    holder.rollback().await.expect("rolled back");
    let settled = timeout(SOON, settling).await.expect("it ends").expect("it does not panic");
    assert_eq!(settled, [true; 10], "verb {verb}");
}

/// A relay that gave up waiting leaves nothing behind that waits or holds rows.
#[tokio::test]
async fn g4_tries_that_were_cut_off_hold_no_rows() {
    undisturbed(Duration::from_secs(8), a_try_that_is_cut_off).await;
}

async fn a_try_that_is_cut_off() {
    let scene = OnMySql::new().await;
    let leases = leases(&scene, 10).await;
    let mut holder = scene.pool.begin().await.expect("begun");
    let lock = "select 1 from outbox_messages order by seq desc limit 1 for update";
    sqlx::raw_sql(lock).execute(&mut *holder).await.expect("locked");
    let cut_off = timeout(Duration::from_millis(300), scene.store.ack(&leases, Delivered::Keep)).await;
    assert!(cut_off.is_err(), "it waits for the row");
    let rest = timeout(Duration::from_secs(4), scene.store.ack(&leases[..9], Delivered::Keep)).await;
    assert_eq!(rest.expect("it ends").expect("acked"), [Settled::Done; 9]);
    holder.rollback().await.expect("rolled back");
}

/// What the relay's transactions change about their sessions; the pool gets them back as they were.
#[tokio::test]
async fn g5_transactions_of_the_relay_wait_and_idle_for_a_limited_time_only() {
    let scene = OnMySql::with(|options| options.max_connections(1)).await;
    scene.execute("set session innodb_lock_wait_timeout = 77, session wait_timeout = 7777").await;
    scene.execute("create table seen (lock_wait int, idle int); create trigger look before update on outbox_messages for each row insert into seen values (@@session.innodb_lock_wait_timeout, @@session.wait_timeout)").await;
    let limits = "select cast(@@session.innodb_lock_wait_timeout * 10000 + @@session.wait_timeout as signed)";
    let leases = leases(&scene, 2).await;
    assert_eq!(scene.number("select count(*) from seen where lock_wait = 1 and idle = 30").await, 2, "the claim's");
    assert_eq!(scene.number(limits).await, 777_777);
    settle(&scene.store, 5, &leases).await;
    assert_eq!(scene.number("select count(*) from seen where lock_wait = 1 and idle = 30").await, 4, "the renewal's");
    assert_eq!(scene.number(limits).await, 777_777);
    // Rolled back, and settled after a look.
    settle(&scene.store, 0, &leases[..1]).await;
    assert_eq!(settle(&scene.store, 0, &leases).await, [false, true]);
    assert_eq!(scene.number(limits).await, 777_777);
    scene.execute("create trigger refuse before insert on seen for each row signal sqlstate '45000'").await;
    scene.put(vec![message()]).await;
    assert!(scene.store.claim(&crate::scene::request()).await.is_err(), "the trigger refuses");
    assert_eq!(scene.number(limits).await, 777_777);
}

/// A transaction whose relay is frozen ends by itself: the limit is the one of the test above, lowered.
#[tokio::test]
async fn g5_rows_of_a_frozen_transaction_become_claimable() {
    let scene = OnMySql::new().await;
    scene.put(vec![message()]).await;
    let mut frozen = scene.pool.acquire().await.expect("a connection");
    let claim = "set session wait_timeout = 1; set transaction isolation level read committed; start transaction; select seq from outbox_messages for update";
    sqlx::raw_sql(claim).execute(&mut *frozen).await.expect("locked");
    assert_eq!(scene.claim().await.len(), 0, "it is passed over");
    testkit::eventually(SOON, || async { scene.claim().await.len() == 1 }).await;
    drop(frozen.detach());
}

/// A row that stays locked is an error, which the dispatcher tries again.
#[tokio::test]
async fn g4_a_row_that_stays_locked_is_a_conflict() {
    let scene = OnMySql::new().await;
    let leases = leases(&scene, 2).await;
    let mut holder = scene.pool.begin().await.expect("begun");
    let lock = "select 1 from outbox_messages order by seq desc limit 1 for update";
    sqlx::raw_sql(lock).execute(&mut *holder).await.expect("locked");
    let refused = timeout(SOON, scene.store.ack(&leases, Delivered::Keep)).await.expect("it ends");
    assert_eq!(refused.expect_err("one is locked").kind(), postrider::StoreErrorKind::Conflict);
    holder.rollback().await.expect("rolled back");
    let again = scene.store.ack(&leases, Delivered::Keep).await.expect("acked");
    assert_eq!(again[1], Settled::Done);
    assert_eq!(scene.number("select count(*) from outbox_messages where status = 'delivered'").await, 2);
}

#[tokio::test]
async fn r38_a_producer_that_waited_too_long_is_told_to_try_again() {
    let scene = OnMySql::new().await;
    let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
    let mut first = scene.pool.begin().await.expect("begun");
    scene.store.outbox().enqueue(&mut first, message().dedupe_key("k")).await.expect("valid");
    let refused = scene.enqueue(&hasty, vec![message().dedupe_key("k")]).await.expect_err("the key is held");
    assert!(matches!(refused, EnqueueError::Conflict(_)) && refused.is_retryable(), "{refused:?}");
    first.commit().await.expect("committed");
    assert!(!scene.enqueue(&hasty, vec![message().dedupe_key("k")]).await.expect("valid")[0].is_new());
}

/// A snapshot taken before the winner's commit does not hide it.
#[tokio::test]
async fn r03_a_loser_whose_snapshot_is_older_than_the_winner_still_learns_the_winner_s_id() {
    let scene = OnMySql::new().await;
    let mut old = scene.pool.begin().await.expect("begun");
    sqlx::raw_sql("select count(*) from outbox_messages").execute(&mut *old).await.expect("a snapshot");
    let won = scene.enqueue(&scene.pool, vec![message().dedupe_key("k")]).await.expect("valid")[0].id();
    let lost = scene.store.outbox().enqueue(&mut old, message().dedupe_key("k")).await.expect("no error");
    assert_eq!(lost, postrider::Enqueued::Already(won));
    old.commit().await.expect("committed");
}
