//! The doorbell: nobody sleeps through a commit.
//!
//! A bell may ring for nothing (another namespace, a ring that came late), so no test forbids that; what counts is
//! that a commit after arming is always noticed. A store that cannot ring answers [`Armed::Never`], so that it is polled.

use std::time::Duration;

use postrider::store::Scope;
use postrider::{Armed, Doorbell};
use tokio::time::timeout;
use uuid::Uuid;

use super::harness::Harness;
use super::scene::{message, message_in};

/// Far longer than a ring takes.
const RINGS_WITHIN: Duration = Duration::from_secs(40);
/// Long enough to tell that a wait goes on.
const A_MOMENT: Duration = Duration::from_millis(50);

async fn bell(h: &impl Harness, scope: &Scope) -> Box<dyn Doorbell> {
    h.store().doorbell(scope).await.expect("the store has a bell")
}

async fn arm(h: &impl Harness, bell: &mut dyn Doorbell) -> Armed {
    let armed = bell.arm().await.expect("the bell can be armed");
    let rings = h.store().capabilities().rings;
    assert_eq!(armed != Armed::Never, rings, "a bell is there if and only if the store can ring");
    armed
}

async fn assert_rings(bell: &mut dyn Doorbell) {
    timeout(RINGS_WITHIN, bell.wait()).await.expect("the bell rings").expect("the bell is sound");
}

pub async fn p9_a_commit_rings_an_armed_bell(h: impl Harness) {
    for scope in [Scope::all(), Scope::namespace("shop")] {
        let mut bell = bell(&h, &scope).await;
        if arm(&h, &mut *bell).await == Armed::Never {
            return;
        }
        h.put(message()).await;
        assert_rings(&mut *bell).await;
        assert!(!h.claim_all(Uuid::new_v4()).await.is_empty(), "the row is there when it rings");
        bell.disarm().await.expect("disarmed");
    }
}

pub async fn p9_many_messages_in_one_call_ring_too(h: impl Harness) {
    let mut bell = bell(&h, &Scope::namespace("b")).await;
    if arm(&h, &mut *bell).await == Armed::Never {
        return;
    }
    h.enqueue_many(vec![message_in("a", "t"), message_in("b", "t"), message_in("c", "t")]).await.expect("valid");
    assert_rings(&mut *bell).await;
}

pub async fn p9_a_transaction_that_was_open_while_arming_is_not_missed(h: impl Harness) {
    let mut transaction = h.begin().await;
    h.write(&mut transaction, vec![message()]).await.expect("valid");
    let mut bell = bell(&h, &Scope::all()).await;
    let armed = arm(&h, &mut *bell).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty(), "it is not committed yet");
    h.commit(transaction).await;
    if armed == Armed::Yes {
        assert_rings(&mut *bell).await;
    }
    // A busy bell makes the dispatcher look again, and then the row is there.
    assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 1);
}

pub async fn p9_a_bell_that_was_busy_can_be_armed_once_the_transaction_ended(h: impl Harness) {
    let mut transaction = h.begin().await;
    h.write(&mut transaction, vec![message()]).await.expect("valid");
    let mut bell = bell(&h, &Scope::namespace("shop")).await;
    if arm(&h, &mut *bell).await == Armed::Never {
        return;
    }
    h.commit(transaction).await;
    assert_eq!(arm(&h, &mut *bell).await, Armed::Yes);
    h.put(message()).await;
    assert_rings(&mut *bell).await;
}

pub async fn p9_a_transaction_open_since_before_arming_that_enqueues_later_rings(h: impl Harness) {
    let mut transaction = h.begin().await;
    let mut bell = bell(&h, &Scope::all()).await;
    if arm(&h, &mut *bell).await == Armed::Never {
        return;
    }
    h.write(&mut transaction, vec![message()]).await.expect("valid");
    assert!(timeout(A_MOMENT, bell.wait()).await.is_err(), "no wake-up before the commit");
    h.commit(transaction).await;
    assert_rings(&mut *bell).await;
}

pub async fn r01_after_a_rollback_nothing_is_there_to_wake_for(h: impl Harness) {
    let mut bell = bell(&h, &Scope::all()).await;
    arm(&h, &mut *bell).await;
    let mut transaction = h.begin().await;
    h.write(&mut transaction, vec![message()]).await.expect("valid");
    h.roll_back(transaction).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
}

pub async fn a_wait_that_was_dropped_loses_no_ring(h: impl Harness) {
    let mut bell = bell(&h, &Scope::all()).await;
    if arm(&h, &mut *bell).await == Armed::Never {
        return;
    }
    assert!(timeout(A_MOMENT, bell.wait()).await.is_err());
    h.put(message()).await;
    assert_rings(&mut *bell).await;
}

pub async fn a_dispatcher_with_too_much_to_do_wakes_the_others(h: impl Harness) {
    let (mut first, mut second) = (bell(&h, &Scope::all()).await, bell(&h, &Scope::all()).await);
    if arm(&h, &mut *first).await == Armed::Never {
        return;
    }
    assert_eq!(arm(&h, &mut *second).await, Armed::Yes, "two can sleep at the same time");
    h.store().ring(&Scope::all()).await.expect("rung");
    assert_rings(&mut *first).await;
    assert_rings(&mut *second).await;
}

pub async fn every_sleeper_hears_a_commit(h: impl Harness) {
    let mut sleepers = Vec::new();
    for scope in [Scope::all(), Scope::namespace("shop"), Scope::namespace("shop")] {
        let mut bell = bell(&h, &scope).await;
        if arm(&h, &mut *bell).await == Armed::Never {
            return;
        }
        sleepers.push(bell);
    }
    h.put(message()).await;
    for sleeper in &mut sleepers {
        assert_rings(&mut **sleeper).await;
    }
}

pub async fn a_bell_can_be_armed_again_and_again(h: impl Harness) {
    let mut bell = bell(&h, &Scope::all()).await;
    for _ in 0..3 {
        if arm(&h, &mut *bell).await == Armed::Never {
            return;
        }
        h.put(message()).await;
        assert_rings(&mut *bell).await;
        bell.disarm().await.expect("disarmed");
        h.put(message()).await;
        bell.disarm().await.expect("disarming twice is fine");
    }
}
