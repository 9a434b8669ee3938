//! Trap 12: no claim, settle or sweep stops producers, because none locks a gap.

use std::time::{Duration, Instant};

use postrider::store::{ClaimOrder, ClaimRequest, Finished, Purge, Scope};
use postrider::{Message, Store};
use tokio::time::sleep;

use crate::scene::{OnMySql, message, pool_in, request};

/// Every change of a row takes this long from now on, so that the transactions of the relay stay open.
const SLOW: &str = "
    create trigger slow_update before update on outbox_messages for each row set @slept = sleep(1.5);
    create trigger slow_delete before delete on outbox_messages for each row set @slept = sleep(1.5)";

/// Producers write before, between and after the relay's rows, with and without keys, while `act` has its transaction open.
async fn producers_go_on(scene: &OnMySql, act: impl Future<Output = usize> + Send + 'static) {
    let hasty = pool_in(&scene.database, "set session innodb_lock_wait_timeout = 1").await;
    scene.execute(SLOW).await;
    let before = Instant::now();
    let acting = tokio::spawn(act);
    sleep(Duration::from_millis(300)).await;
    for namespace in ["a", "shop", "z"] {
        let began = Instant::now();
        let one = Message::json(namespace, "order.placed", &1);
        let keyed = Message::json(namespace, "order.placed", &1).dedupe_key("new");
        let early = Message::json(namespace, "order.placed", &1).deliver_at(std::time::UNIX_EPOCH);
        scene.enqueue(&hasty, vec![one, keyed, early]).await.expect("nobody waits for the relay");
        assert!(began.elapsed() < Duration::from_millis(800), "it took {:?}", began.elapsed());
    }
    assert!(!acting.is_finished(), "the relay's transaction was open all the time");
    assert_eq!(acting.await.expect("it does not panic"), 1);
    assert!(before.elapsed() > Duration::from_millis(1_400));
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
                _ => {
                    let replay = postrider::store::Replay { scope: Scope::all(), topic: None, ids: None, limit: 10 };
                    store.replay(&replay).await.expect("replayed").len()
                }
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
    sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    assert_eq!(scene.store.purge(&purge).await.expect("answered"), 0);
    assert!(began.elapsed() < Duration::from_secs(1));
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    testkit::eventually(Duration::from_secs(20), || async { scene.store.purge(&purge).await.expect("answered") == 1 })
        .await;
    assert_eq!(scene.number("select count(*) from outbox_messages").await, 1);
}
