//! Which rows can be claimed, and what a claim writes.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use postrider::store::{ClaimRequest, LARGEST_CLAIM, Scope};
use postrider::{Message, State};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

pub async fn s0_57_claim_sets_state_attempt_owner_and_lease(h: impl Harness) {
    let (worker, id) = (Uuid::new_v4(), h.put(message()).await);
    h.pass_time(SECOND).await;
    let before = h.now_micros().await;
    let claimed = h.claim_one(worker).await;
    let after = h.now_micros().await;
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts, row.locked_by), (State::Processing, 1, Some(worker)));
    let lease = micros(LEASE);
    assert!((before + lease..=after + lease).contains(&row.locked_until.expect("leased")), "{row:?}");
    assert!((before..=after).contains(&row.updated_at));
    assert_eq!((claimed.lease.id, claimed.lease.worker, claimed.lease.attempt), (id, worker, 1));
    assert_eq!(claimed.attempts, 1);
}

pub async fn s0_31_a_claim_says_when_the_message_was_written_and_how_old_it_is(h: impl Harness) {
    let id = h.put(message()).await;
    h.pass_time(HOUR).await;
    let claimed = h.claim_one(Uuid::new_v4()).await;
    assert_eq!(claimed.created_at_micros, h.row(id).await.created_at);
    assert!(claimed.age >= HOUR && claimed.age < HOUR * 2, "{:?}", claimed.age);
}

pub async fn s0_52_a_pending_row_is_claimable_once_its_time_has_come(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.store().nack(&[nack(claimed.lease, HOUR)]).await.expect("the store nacks");
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    h.pass_time(HOUR - MINUTE).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    h.pass_time(MINUTE).await;
    assert_eq!(h.claim_one(Uuid::new_v4()).await.attempts, 2);
}

pub async fn a_delayed_message_is_not_claimable_before_its_time(h: impl Harness) {
    h.put(message().deliver_after(HOUR)).await;
    let at = UNIX_EPOCH + Duration::from_micros(h.now_micros().await.unsigned_abs()) + HOUR;
    h.put(message().deliver_at(at)).await;
    h.pass_time(HOUR - MINUTE).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    h.pass_time(MINUTE).await;
    assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 2);
}

pub async fn a_delivery_time_in_the_past_means_now(h: impl Harness) {
    h.put(message().deliver_at(UNIX_EPOCH)).await;
    h.claim_one(Uuid::new_v4()).await;
}

pub async fn s0_53_s0_70_s0_87_s0_91_an_expired_lease_is_claimed_again_by_another_worker(h: impl Harness) {
    let crashed = h.put_and_claim(message()).await;
    h.expire().await;
    let other = Uuid::new_v4();
    let again = h.claim_one(other).await;
    assert_eq!((again.id, again.attempts, again.lease.attempt), (crashed.id, 2, 2));
    let row = h.row(crashed.id).await;
    assert_eq!((row.status, row.attempts, row.locked_by), (State::Processing, 2, Some(other)));
}

pub async fn s0_84_a_live_lease_is_not_claimed(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.pass_time(LEASE - MINUTE).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    assert!(h.claim_all(claimed.lease.worker).await.is_empty(), "not even by its own worker");
}

pub async fn s0_54_a_row_at_its_limit_is_not_claimable(h: impl Harness) {
    let limited = |worker| ClaimRequest { max_attempts: 1, ..request(worker) };
    let pending = h.put_and_claim(message()).await;
    fail(&*h.store(), pending.lease).await;
    assert!(h.claim(&limited(Uuid::new_v4())).await.is_empty());
    let crashed = h.claim_one(Uuid::new_v4()).await;
    h.expire().await;
    assert!(h.claim(&limited(Uuid::new_v4())).await.is_empty());
    assert_eq!(h.row(crashed.id).await.attempts, 2);
}

pub async fn s0_58_three_attempts_mean_three_deliveries(h: impl Harness) {
    h.put(message()).await;
    let three = ClaimRequest { max_attempts: 3, ..request(Uuid::new_v4()) };
    for attempt in 1..=3 {
        let claimed = h.claim(&three).await;
        assert_eq!(claimed.iter().map(|message| message.attempts).collect::<Vec<_>>(), [attempt]);
        fail(&*h.store(), claimed[0].lease).await;
    }
    assert!(h.claim(&three).await.is_empty());
}

pub async fn c12_a_row_s_own_number_of_attempts_wins(h: impl Harness) {
    let fewer = h.put(message().max_attempts(1)).await;
    let more = h.put(message().max_attempts(3)).await;
    let two = ClaimRequest { max_attempts: 2, ..request(Uuid::new_v4()) };
    let mut seen = Vec::new();
    for _ in 0..5 {
        for message in h.claim(&two).await {
            seen.push(message.id);
            fail(&*h.store(), message.lease).await;
        }
    }
    assert_eq!(seen.iter().filter(|id| **id == fewer).count(), 1);
    assert_eq!(seen.iter().filter(|id| **id == more).count(), 3);
}

pub async fn s0_17_a_claim_keeps_to_its_namespaces(h: impl Harness) {
    let placed = h.put_all(["a", "b", "c", "b"].map(|namespace| message_in(namespace, "t"))).await;
    let in_scope = |names: &[&str]| {
        let namespaces = Some(names.iter().map(|name| (*name).to_owned()).collect());
        ClaimRequest { scope: Scope { namespaces, tenant: None }, ..request(Uuid::new_v4()) }
    };
    assert!(h.claim(&in_scope(&[])).await.is_empty());
    assert!(h.claim(&in_scope(&["none"])).await.is_empty());
    assert_eq!(ids(&h.claim(&in_scope(&["a"])).await), [placed[0]]);
    assert_eq!(set(ids(&h.claim(&in_scope(&["b", "c"])).await)), set(placed[1..].to_vec()));
}

pub async fn s0_37_s08_a_claim_keeps_to_its_tenant(h: impl Harness) {
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    let placed = h.put_all([message().tenant(theirs), message().tenant(ours), message()]).await;
    let scope = Scope { namespaces: None, tenant: Some(ours) };
    let scoped = ClaimRequest { scope: scope.clone(), ..request(Uuid::new_v4()) };
    assert_eq!(ids(&h.claim(&scoped).await), [placed[1]]);
    let both = Scope { namespaces: Some(vec!["elsewhere".into()]), ..scope };
    h.expire().await;
    assert!(h.claim(&ClaimRequest { scope: both, ..request(Uuid::new_v4()) }).await.is_empty());
}

pub async fn a_scope_holds_for_expired_leases_too(h: impl Harness) {
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    let placed = h.put_all([message_in("a", "t").tenant(ours), message_in("b", "t").tenant(theirs)]).await;
    assert_eq!(h.claim_all(Uuid::new_v4()).await.len(), 2);
    h.expire().await;
    let by_tenant = Scope { namespaces: None, tenant: Some(theirs) };
    assert_eq!(ids(&h.claim(&ClaimRequest { scope: by_tenant, ..request(Uuid::new_v4()) }).await), [placed[1]]);
    let by_namespace = Scope::namespace("a");
    assert_eq!(ids(&h.claim(&ClaimRequest { scope: by_namespace, ..request(Uuid::new_v4()) }).await), [placed[0]]);
}

pub async fn s0_11_a_claim_takes_no_more_than_its_limit(h: impl Harness) {
    h.put_all((0..5).map(|_| message())).await;
    let limited = |limit| ClaimRequest { limit, ..request(Uuid::new_v4()) };
    assert!(h.claim(&limited(0)).await.is_empty());
    assert_eq!(h.claim(&limited(2)).await.len(), 2);
    h.expire().await;
    assert_eq!(h.claim(&limited(3)).await.len(), 3, "expired and due rows count together");
    assert_eq!(h.claim(&limited(9)).await.len(), 2);
}

pub async fn a_claim_stops_once_it_has_its_bytes(h: impl Harness) {
    h.put_all((0..5).map(|_| Message::json("shop", "t", &"x".repeat(1_000)))).await;
    let sized = |max_bytes| ClaimRequest { max_bytes, ..request(Uuid::new_v4()) };
    assert_eq!(h.claim(&sized(2_500)).await.len(), 3, "the third reaches the size");
    assert_eq!(h.claim(&sized(u64::MAX)).await.len(), 2);
}

pub async fn a_claim_always_takes_the_first_row_however_large(h: impl Harness) {
    h.put_all((0..3).map(|_| Message::bytes("shop", "t", "a/b", vec![7; 5_000]))).await;
    let sized = |max_bytes| ClaimRequest { max_bytes, ..request(Uuid::new_v4()) };
    assert_eq!(h.claim(&sized(1)).await.len(), 1);
    assert_eq!(h.claim(&sized(0)).await.len(), 1);
}

pub async fn nothing_to_claim_is_an_empty_answer(h: impl Harness) {
    let claimed = h.store().claim(&request(Uuid::new_v4())).await.expect("the store claims");
    assert!(claimed.messages.is_empty() && claimed.last_lane.is_none());
}

pub async fn s0_68_s0_85_a_delivered_row_is_never_claimed(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    ack(&*h.store(), claimed.lease).await;
    h.pass_time(HOUR).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty() && h.claim(&suspects()).await.is_empty());
}

pub async fn s0_86_a_dead_row_is_never_claimed(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    give_up(&*h.store(), claimed.lease).await;
    h.pass_time(HOUR).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty() && h.claim(&suspects()).await.is_empty());
}

pub async fn s0_60_s0_90_parallel_workers_never_claim_the_same_row(h: impl Harness) {
    const ROWS: usize = 2_000;
    h.enqueue_many((0..ROWS).map(|_| message()).collect()).await.expect("valid");
    let workers = (0..8).map(|_| {
        let store = h.store();
        tokio::spawn(async move {
            let request = ClaimRequest { limit: 25, ..request(Uuid::new_v4()) };
            let (mut claimed, mut idle) = (Vec::new(), 0);
            // A claim may come back empty while another holds the last rows for a moment.
            while idle < 3 {
                let messages = store.claim(&request).await.expect("the store claims").messages;
                idle = if messages.is_empty() { idle + 1 } else { 0 };
                assert!(messages.iter().all(|message| message.attempts == 1));
                claimed.extend(ids(&messages));
            }
            claimed
        })
    });
    let mut all = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        all.extend(worker.await.expect("no worker panics"));
    }
    all.extend(ids(&h.claim(&ClaimRequest { limit: LARGEST_CLAIM, ..request(Uuid::new_v4()) }).await));
    assert_eq!(all.len(), ROWS, "every row is claimed, and none twice");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), ROWS);
}
