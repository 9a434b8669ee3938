//! Which rows come first, and that nobody starves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::store::{ClaimOrder, ClaimRequest, Claimed, Lane, Scope};
use postrider::{ClaimedMessage, Message};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

pub async fn s0_59_s0_61_a_batch_is_in_the_order_of_enqueueing(h: impl Harness) {
    let mut placed = h.put_all((0..20).map(|_| message())).await;
    let many = h.enqueue_many((0..20).map(|_| message()).collect()).await.expect("valid");
    placed.extend(many.iter().map(|answer| answer.id()));
    assert_eq!(ids(&h.claim_all(Uuid::new_v4()).await), placed);
}

pub async fn s0_61_a_batch_with_retried_rows_keeps_the_order_of_enqueueing(h: impl Harness) {
    let placed = h.put_all((0..10).map(|_| message())).await;
    for message in h.claim_all(Uuid::new_v4()).await.iter().step_by(2) {
        fail(&*h.store(), message.lease).await;
    }
    h.expire().await;
    assert_eq!(ids(&h.claim_all(Uuid::new_v4()).await), placed);
}

pub async fn s0_59_what_has_been_due_for_longest_is_claimed_first(h: impl Harness) {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let placed = h.put_all([30, 10, 20].map(|delay| message().deliver_after(minutes(delay)))).await;
    h.pass_time(HOUR).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.extend(ids(&h.claim(&ClaimRequest { limit: 1, ..request(Uuid::new_v4()) }).await));
    }
    assert_eq!(order, [placed[1], placed[2], placed[0]]);
}

pub async fn s0_59_rows_due_at_the_same_time_are_claimed_in_the_order_of_enqueueing(h: impl Harness) {
    let answers = h.enqueue_many((0..4).map(|_| message()).collect()).await.expect("valid");
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(ids(&h.claim(&ClaimRequest { limit: 1, ..request(Uuid::new_v4()) }).await));
    }
    assert_eq!(order, answers.iter().map(|answer| answer.id()).collect::<Vec<_>>());
}

pub async fn expired_leases_come_before_due_rows(h: impl Harness) {
    h.put(message().deliver_at(std::time::UNIX_EPOCH)).await;
    let crashed = h.claim_one(Uuid::new_v4()).await;
    h.put_all((0..3).map(|_| message().deliver_at(std::time::UNIX_EPOCH))).await;
    h.expire().await;
    let first = h.claim(&ClaimRequest { limit: 1, ..request(Uuid::new_v4()) }).await;
    assert_eq!(ids(&first), [crashed.id]);
}

pub async fn r24_the_row_due_for_longest_is_claimed_whatever_its_namespace(h: impl Harness) {
    let oldest = h.put(message_in("z", "t")).await;
    h.pass_time(SECOND).await;
    h.put_all(["a", "b", "a", "b", "c", "c"].map(|namespace| message_in(namespace, "t"))).await;
    for scope in [Scope::all(), Scope { namespaces: Some(["a", "b", "c", "z"].map(String::from).into()), tenant: None }]
    {
        let claimed = h.claim(&ClaimRequest { scope, limit: 2, ..request(Uuid::new_v4()) }).await;
        assert!(ids(&claimed).contains(&oldest), "the oldest row of all is in the claim");
        for message in &claimed {
            h.store().release(&[release(message.lease)]).await.expect("the store releases");
        }
    }
}

pub async fn a_claim_over_two_busy_namespaces_takes_from_both(h: impl Harness) {
    h.put_all((0..20).map(|_| message_in("a", "t"))).await;
    h.put_all((0..5).map(|_| message_in("b", "t"))).await;
    let claimed = h.claim(&ClaimRequest { limit: 10, ..request(Uuid::new_v4()) }).await;
    assert_eq!(claimed.iter().filter(|message| message.namespace == "b").count(), 5);
    assert_eq!(claimed.len(), 10);
}

fn fair(after: Option<Lane>, limit: u32) -> ClaimRequest {
    ClaimRequest { order: ClaimOrder::Fair { after }, limit, ..request(Uuid::new_v4()) }
}

async fn claim_fair(h: &impl Harness, request: &ClaimRequest) -> Claimed {
    h.store().claim(request).await.expect("the store claims")
}

fn by_topic(messages: &[ClaimedMessage]) -> BTreeMap<&str, usize> {
    messages.iter().fold(BTreeMap::new(), |mut counts, message| {
        *counts.entry(message.topic.as_str()).or_default() += 1;
        counts
    })
}

/// Lanes that never run dry: each claim's rows are put back as they were.
async fn serve_until_round(h: &impl Harness, limit: u32, max_bytes: u64, claims: usize) -> BTreeSet<String> {
    let (mut served, mut after) = (BTreeSet::new(), None);
    for _ in 0..claims {
        let claimed = claim_fair(h, &ClaimRequest { max_bytes, ..fair(after, limit) }).await;
        for message in &claimed.messages {
            served.insert(message.topic.clone());
            h.store().release(&[release(message.lease)]).await.expect("the store releases");
        }
        after = claimed.last_lane;
    }
    served
}

fn busy_lanes(lanes: usize, rows: usize) -> Vec<Message> {
    (0..lanes * rows).map(|at| message_in("shop", &format!("t{:02}", at % lanes))).collect()
}

pub async fn r24_a_fair_claim_gives_every_lane_its_share(h: impl Harness) {
    h.put_all((0..50).map(|_| message_in("shop", "hot"))).await;
    h.put_all((0..3).map(|_| message_in("shop", "small"))).await;
    h.put_all((0..3).map(|_| message_in("shop", "tiny").tenant(Uuid::from_u128(1)))).await;
    let claimed = claim_fair(&h, &fair(None, 9)).await;
    assert_eq!(by_topic(&claimed.messages), BTreeMap::from([("hot", 3), ("small", 3), ("tiny", 3)]));
}

pub async fn r24_lanes_differ_by_namespace_topic_and_tenant(h: impl Harness) {
    h.put_all((0..20).map(|_| message_in("a", "t").tenant(Uuid::from_u128(1)))).await;
    let others = [
        message_in("a", "t"),
        message_in("a", "t").tenant(Uuid::from_u128(2)),
        message_in("a", "u").tenant(Uuid::from_u128(1)),
        message_in("b", "t").tenant(Uuid::from_u128(1)),
    ];
    let others = h.put_all(others).await;
    let claimed = set(ids(&claim_fair(&h, &fair(None, 10)).await.messages));
    assert!(others.iter().all(|id| claimed.contains(id)));
}

pub async fn r24_a_fair_claim_takes_the_longest_due_of_each_lane_and_returns_them_in_order(h: impl Harness) {
    let placed = h.put_all(busy_lanes(2, 3)).await;
    let claimed = claim_fair(&h, &fair(None, 4)).await;
    assert_eq!(ids(&claimed.messages), placed[..4]);
}

pub async fn r24_fair_claims_go_round_all_lanes(h: impl Harness) {
    h.enqueue_many(busy_lanes(70, 2)).await.expect("valid");
    let served = serve_until_round(&h, 100, u64::MAX, 4).await;
    assert_eq!(served.len(), 70, "every lane was served: {served:?}");
}

/// More lanes than a fair claim gives shares to, in front of one that has a row which is due.
fn lanes_in_front(lanes: usize, delay: Duration) -> Vec<Message> {
    (0..lanes).map(|at| message_in("shop", &format!("a{at:03}")).deliver_after(delay)).collect()
}

pub async fn r24_lanes_that_nothing_is_due_of_are_passed_over(h: impl Harness) {
    h.enqueue_many(lanes_in_front(100, HOUR)).await.expect("valid");
    let due = h.put(message_in("shop", "z")).await;
    let claimed = claim_fair(&h, &fair(None, 10)).await;
    assert_eq!(ids(&claimed.messages), [due]);
    assert_eq!(claimed.last_lane, None, "it went round");
}

pub async fn r24_lanes_of_others_are_passed_over(h: impl Harness) {
    h.enqueue_many(lanes_in_front(100, Duration::ZERO)).await.expect("valid");
    let tenant = Uuid::from_u128(8);
    let ours = h.put(message_in("shop", "z").tenant(tenant)).await;
    let scope = Scope { namespaces: None, tenant: Some(tenant) };
    assert_eq!(ids(&claim_fair(&h, &ClaimRequest { scope, ..fair(None, 10) }).await.messages), [ours]);
}

pub async fn r24_fair_claims_go_on_behind_hundreds_of_lanes_that_get_nothing(h: impl Harness) {
    h.enqueue_many(lanes_in_front(600, HOUR)).await.expect("valid");
    let due = h.put(message_in("shop", "z")).await;
    let first = claim_fair(&h, &fair(None, 10)).await;
    assert_eq!(ids(&first.messages), NONE, "a claim does not look at every lane there is");
    assert!(first.last_lane.is_some(), "and says where it stopped");
    assert_eq!(ids(&claim_fair(&h, &fair(first.last_lane, 10)).await.messages), [due]);
}

pub async fn r24_no_lane_loses_its_turn_when_a_claim_is_smaller_than_the_lanes(h: impl Harness) {
    h.enqueue_many(busy_lanes(7, 3)).await.expect("valid");
    let served = serve_until_round(&h, 2, u64::MAX, 8).await;
    assert_eq!(served.len(), 7, "every lane was served: {served:?}");
}

pub async fn r24_no_lane_loses_its_turn_when_a_claim_is_cut_by_its_bytes(h: impl Harness) {
    h.enqueue_many(busy_lanes(5, 2)).await.expect("valid");
    let served = serve_until_round(&h, 100, 1, 10).await;
    assert_eq!(served.len(), 5, "every lane was served: {served:?}");
}

pub async fn r24_a_fair_claim_keeps_to_its_scope(h: impl Harness) {
    let tenant = Uuid::from_u128(7);
    let placed = h.put_all([message_in("a", "t"), message_in("b", "t"), message_in("b", "t").tenant(tenant)]).await;
    let scoped = |scope| ClaimRequest { scope, ..fair(None, 10) };
    let by_tenant = Scope { namespaces: None, tenant: Some(tenant) };
    assert_eq!(ids(&claim_fair(&h, &scoped(by_tenant)).await.messages), [placed[2]]);
    assert_eq!(ids(&claim_fair(&h, &scoped(Scope::namespace("b"))).await.messages), [placed[1]]);
}

pub async fn r24_a_fair_claim_of_nothing_answers_nothing(h: impl Harness) {
    let claimed = claim_fair(&h, &fair(None, 10)).await;
    assert!(claimed.messages.is_empty() && claimed.last_lane.is_none());
}

pub async fn r24_a_fair_claim_leaves_delayed_and_spent_rows(h: impl Harness) {
    h.put(message().deliver_after(HOUR)).await;
    let spent = h.put_and_claim(message()).await;
    fail(&*h.store(), spent.lease).await;
    let claimed = claim_fair(&h, &ClaimRequest { max_attempts: 1, ..fair(None, 10) }).await;
    assert!(claimed.messages.is_empty());
}
