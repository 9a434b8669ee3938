//! Trap 12: no claim, settle or sweep stops producers, because none locks a gap; no open producer stops the relay or
//! other producers.

use std::time::{Duration, Instant};

use postrider::store::{ClaimOrder, ClaimRequest, Finished, Purge, Scope};
use postrider::{Lease, Message, Operator, Store};
use sqlx::{MySql, Transaction};
use tokio::time::timeout;

use crate::conflicts::settle;
use crate::scene::{OnMySql, message, pool_in, purge, replay, request};

/// Every change of a row waits for a lock that a test holds, so that the transactions of the relay stay open until it lets go.
const HELD_UP: &str = "
    create trigger held_update before update on outbox_messages for each row set @held = get_lock(database(), 600) + release_lock(database());
    create trigger held_delete before delete on outbox_messages for each row set @held = get_lock(database(), 600) + release_lock(database())";
/// How many statements wait for it.
const HELD: &str = "select count(*) from information_schema.processlist where db = database() and state = 'User lock'";
/// Every purge takes this long from now on.
const SLOW: &str = "create trigger slow before delete on outbox_messages for each row set @slept = sleep(8)";
const SOON: Duration = Duration::from_secs(120);

/// Producers write before, between and after the relay's rows, with and without keys, while `act` has its transaction open.
async fn producers_go_on(scene: &OnMySql, act: impl Future<Output = usize> + Send + 'static) {
    let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
    scene.execute(HELD_UP).await;
    let mut hand = scene.pool.acquire().await.expect("a connection");
    sqlx::raw_sql("do get_lock(database(), 600)").execute(&mut *hand).await.expect("locked");
    let acting = tokio::spawn(act);
    testkit::eventually(SOON, || async { scene.number(HELD).await > 0 }).await;
    for namespace in ["a", "shop", "z"] {
        let one = Message::json(namespace, "order.placed", &1);
        let keyed = Message::json(namespace, "order.placed", &1).dedupe_key("new");
        let early = Message::json(namespace, "order.placed", &1).deliver_at(std::time::UNIX_EPOCH);
        scene.enqueue(&hasty, vec![one, keyed, early]).await.expect("nobody waits for the relay");
    }
    assert!(!acting.is_finished(), "the relay's transaction was open all the time");
    sqlx::raw_sql("do release_lock(database())").execute(&mut *hand).await.expect("let go");
    assert_eq!(acting.await.expect("it does not panic"), 1);
}

#[tokio::test]
async fn t12_producers_write_while_a_claim_is_open() {
    for (order, setup) in [
        (ClaimOrder::Due, ""),
        (
            ClaimOrder::Due,
            "update outbox_messages set status = 'processing', attempts = 1, locked_until = '2000-01-01'",
        ),
        (ClaimOrder::Fair { after: None }, ""),
        (
            ClaimOrder::Suspects,
            "update outbox_messages set status = 'processing', attempts = 2, locked_until = '2000-01-01'",
        ),
    ] {
        let scene = OnMySql::new().await;
        scene.put(vec![message().dedupe_key("old")]).await;
        if !setup.is_empty() {
            scene.execute(setup).await;
        }
        let store = scene.store.clone();
        let act = async move {
            let request = ClaimRequest { order, ..request() };
            store.claim(&request).await.expect("claimed").messages.len()
        };
        producers_go_on(&scene, act).await;
    }
}

#[tokio::test]
async fn t12_producers_write_while_a_sweep_or_purge_or_replay_is_open() {
    for verb in 0..3 {
        let scene = OnMySql::new().await;
        scene.put(vec![message().dedupe_key("old")]).await;
        let status = ["processing", "delivered", "dead"][verb];
        let age = format!(
            "update outbox_messages set status = '{status}', attempts = 3, locked_until = '2000-01-01', updated_at = '2000-01-01'"
        );
        scene.execute(age).await;
        let store = scene.store.clone();
        let act = async move {
            match verb {
                0 => store.sweep(&Scope::all(), 3, 10).await.expect("swept").buried.len(),
                1 => {
                    let older_than = Duration::from_secs(1);
                    let purge = Purge { scope: Scope::all(), finished: Finished::Delivered, older_than, limit: 10 };
                    usize::try_from(store.purge(&purge).await.expect("purged")).expect("few")
                }
                _ => store.replay(&replay(Scope::all(), 10)).await.expect("replayed").len(),
            }
        };
        producers_go_on(&scene, act).await;
    }
}

/// One purges, the others are answered zero at once; a purge that was cut off lets the next one in.
#[tokio::test]
async fn t42_one_purges_at_a_time() {
    let scene = OnMySql::new().await;
    // One for each, so that the second would find something to do.
    scene.put(vec![message(), message()]).await;
    scene.execute("update outbox_messages set status = 'delivered', updated_at = '2000-01-01'").await;
    scene.execute(SLOW).await;
    let older_than = Duration::from_secs(1);
    let purge = Purge { scope: Scope::all(), finished: Finished::Delivered, older_than, limit: 1 };
    let (store, ours) = (scene.store.clone(), purge.clone());
    let first = tokio::spawn(async move { store.purge(&ours).await });
    let asleep = "select count(*) from information_schema.processlist where db = database() and state = 'User sleep'";
    testkit::eventually(SOON, || async { scene.number(asleep).await > 0 }).await;
    let began = Instant::now();
    assert_eq!(scene.store.purge(&purge).await.expect("answered"), 0);
    assert!(began.elapsed() < Duration::from_secs(6));
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    testkit::eventually(Duration::from_secs(120), || async { scene.store.purge(&purge).await.expect("answered") == 1 })
        .await;
    assert_eq!(scene.number("select count(*) from outbox_messages").await, 1);
}

/// How a producer enqueues: with the library, or through the procedure.
async fn produce(scene: &OnMySql, transaction: &mut Transaction<'_, MySql>, procedure: bool, key: Option<&str>) {
    if procedure {
        let options = key.map(|key| format!(r#"{{"dedupe_key": "{key}"}}"#));
        let call = sqlx::query("call postrider_enqueue('shop', 'order.placed', '1', ?)").bind(options);
        call.fetch_all(&mut **transaction).await.expect("nobody waits");
        return;
    }
    let message = key.into_iter().fold(message(), |message, key| message.dedupe_key(key));
    scene.store.outbox().enqueue(transaction, message).await.expect("nobody waits");
}

#[tokio::test]
async fn g1_producers_with_other_keys_or_none_do_not_wait_for_one_that_is_open() {
    for procedure in [false, true] {
        let scene = OnMySql::new().await;
        let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
        let mut open = scene.pool.begin().await.expect("begun");
        produce(&scene, &mut open, procedure, Some("k10")).await;
        for key in [None, Some("k05"), Some("k20")] {
            let mut other = hasty.begin().await.expect("begun");
            produce(&scene, &mut other, procedure, key).await;
            other.commit().await.expect("committed");
        }
        open.rollback().await.expect("rolled back");
    }
}

#[tokio::test]
async fn g1_two_producers_of_four_keys_do_not_deadlock() {
    for procedure in [false, true] {
        let scene = OnMySql::new().await;
        let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
        let (mut one, mut other) = (hasty.begin().await.expect("begun"), hasty.begin().await.expect("begun"));
        produce(&scene, &mut one, procedure, Some("k10")).await;
        produce(&scene, &mut other, procedure, Some("k20")).await;
        produce(&scene, &mut one, procedure, Some("k15")).await;
        produce(&scene, &mut other, procedure, Some("k05")).await;
        one.commit().await.expect("committed");
        other.commit().await.expect("committed");
        assert_eq!(scene.claim().await.len(), 4);
    }
}

/// Runs each verb that changes rows on the scene's eight leases or finished rows; answers how many it changed.
async fn change(scene: &OnMySql, verb: usize, leases: &[Lease]) -> usize {
    let store = &scene.store;
    match verb {
        0..=5 => settle(store, verb, leases).await.into_iter().filter(|done| *done).count(),
        6 => usize::try_from(store.purge(&purge()).await.expect("purged")).expect("few"),
        7 => store.sweep(&Scope::all(), 1, 10).await.expect("swept").buried.len(),
        _ => store.replay(&replay(Scope::all(), 10)).await.expect("replayed").len(),
    }
}

/// On a table this small the server would rather read all of it, and would meet the row that is not committed.
#[tokio::test]
async fn g2_no_verb_waits_for_an_open_producer() {
    for verb in 0..9 {
        let scene = OnMySql::new().await;
        scene.put((0..8).map(|_| message()).collect()).await;
        let leases: Vec<_> = scene.claim().await.iter().map(|message| message.lease).collect();
        if let Some(status) = [(6, "delivered"), (7, "processing"), (8, "dead")].iter().find(|(at, _)| *at == verb) {
            let age = "locked_until = '2000-01-01', updated_at = '2000-01-01'";
            scene.execute(format!("update outbox_messages set status = '{}', {age}", status.1)).await;
        }
        let mut producer = scene.pool.begin().await.expect("begun");
        scene.store.outbox().enqueue(&mut producer, message().dedupe_key("open")).await.expect("enqueued");
        // Who waits for the producer gives up by itself and has failed.
        let changed = timeout(SOON, change(&scene, verb, &leases)).await;
        assert_eq!(changed.ok(), Some(8), "verb {verb}");
        producer.rollback().await.expect("rolled back");
    }
}
