//! The fence: a claim that is over changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::store::{ClaimOrder, ClaimRequest, Delivered, Scope};
use postrider::{ClaimedMessage, Lease, Settled, State, Store};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

/// Tries every settling verb and the renewal with a lease; all must be refused.
async fn assert_refused(store: &dyn Store, lease: Lease) {
    let lost = [Settled::LeaseLost];
    assert_eq!(store.ack(&[lease], Delivered::Keep).await.expect("answered"), lost, "ack");
    assert_eq!(store.ack(&[lease], Delivered::Delete).await.expect("answered"), lost, "deleting ack");
    assert_eq!(store.nack(&[nack(lease, HOUR)]).await.expect("answered"), lost, "nack");
    assert_eq!(store.bury(&[bury(lease)]).await.expect("answered"), lost, "bury");
    assert_eq!(store.release(&[release(lease)]).await.expect("answered"), lost, "release");
    assert_eq!(store.extend(&[lease], LEASE).await.expect("answered"), [None], "extend");
}

/// A message that a worker held too long and another claim took over: the stale claim and the live one.
async fn taken_over(h: &impl Harness, first: Uuid, second: Uuid) -> (ClaimedMessage, ClaimedMessage) {
    h.put(message()).await;
    let stale = h.claim_one(first).await;
    h.expire().await;
    let live = h.claim_one(second).await;
    assert_eq!(live.id, stale.id);
    (stale, live)
}

pub async fn r11_s0_72_late_ack_after_reclaim_by_another_worker_is_refused(h: impl Harness) {
    let (stale, live) = taken_over(&h, Uuid::new_v4(), Uuid::new_v4()).await;
    let before = h.row(live.id).await;
    assert_eq!(h.store().ack(&[stale.lease], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(h.row(live.id).await, before, "the row keeps the new owner's state");
    ack(&*h.store(), live.lease).await;
}

pub async fn r12_late_ack_after_reclaim_by_the_same_worker_is_refused(h: impl Harness) {
    let worker = Uuid::new_v4();
    let (stale, live) = taken_over(&h, worker, worker).await;
    let before = h.row(live.id).await;
    for then in [Delivered::Keep, Delivered::Delete] {
        assert_eq!(h.store().ack(&[stale.lease], then).await.expect("answered"), [Settled::LeaseLost]);
    }
    assert_eq!(h.row(live.id).await, before);
    ack(&*h.store(), live.lease).await;
}

pub async fn r12_two_attempts_of_a_row_in_one_batch_are_answered_apart(h: impl Harness) {
    let worker = Uuid::new_v4();
    for then in [Delivered::Keep, Delivered::Delete] {
        let (stale, live) = taken_over(&h, worker, worker).await;
        let renewed = h.store().extend(&[stale.lease, live.lease], LEASE).await.expect("answered");
        assert_eq!(renewed.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        let answers = h.store().ack(&[stale.lease, live.lease], then).await.expect("answered");
        assert_eq!(answers, [Settled::LeaseLost, Settled::Done]);
    }
}

pub async fn r13_stale_settles_are_refused_and_change_nothing(h: impl Harness) {
    let (stale, live) = taken_over(&h, Uuid::new_v4(), Uuid::new_v4()).await;
    let before = h.row(live.id).await;
    assert_refused(&*h.store(), stale.lease).await;
    assert_eq!(h.row(live.id).await, before);
}

pub async fn r13_stale_settles_of_the_same_worker_are_refused_and_change_nothing(h: impl Harness) {
    let worker = Uuid::new_v4();
    let (stale, live) = taken_over(&h, worker, worker).await;
    let before = h.row(live.id).await;
    assert_refused(&*h.store(), stale.lease).await;
    assert_eq!(h.row(live.id).await, before);
}

pub async fn r14_ack_after_expiry_without_reclaim_is_accepted(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.expire().await;
    ack(&*h.store(), claimed.lease).await;
    assert_eq!(h.row(claimed.id).await.status, State::Delivered);
}

pub async fn r14_nack_and_extend_after_expiry_without_reclaim_are_accepted(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.expire().await;
    assert!(h.store().extend(&[claimed.lease], LEASE).await.expect("extended")[0].is_some());
    h.expire().await;
    fail(&*h.store(), claimed.lease).await;
}

pub async fn s0_71_nobody_settles_another_worker_s_row(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    let before = h.row(claimed.id).await;
    assert_refused(&*h.store(), Lease { worker: Uuid::new_v4(), ..claimed.lease }).await;
    assert_eq!(h.row(claimed.id).await, before);
}

pub async fn s0_71_a_lease_of_another_row_settles_neither(h: impl Harness) {
    h.put_all([message(), message()]).await;
    let claimed = h.claim_all(Uuid::new_v4()).await;
    fail(&*h.store(), claimed[1].lease).await;
    let before = h.rows().await;
    // The address is a hint only: with another row's address, the id still decides.
    assert_refused(&*h.store(), Lease { address: claimed[0].lease.address, ..claimed[1].lease }).await;
    assert_eq!(h.rows().await, before);
}

pub async fn s0_83_a_row_that_was_never_claimed_is_not_settled(h: impl Harness) {
    let other = h.put_and_claim(message()).await;
    let id = h.put(message()).await;
    let before = h.row(id).await;
    for attempt in [0, 1] {
        assert_refused(&*h.store(), Lease { id, attempt, ..other.lease }).await;
    }
    assert_eq!(h.row(id).await, before);
}

pub async fn a_row_that_does_not_exist_is_not_settled(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    assert_refused(&*h.store(), Lease { id: Uuid::new_v4(), ..claimed.lease }).await;
    assert_eq!(h.rows().await.len(), 1);
}

pub async fn a_claim_is_settled_once(h: impl Harness) {
    for verb in 0..4 {
        let claimed = h.put_and_claim(message()).await;
        let (store, lease) = (h.store(), claimed.lease);
        match verb {
            0 => ack(&*store, lease).await,
            1 => drop(store.nack(&[nack(lease, HOUR)]).await.expect("nacked")),
            2 => give_up(&*store, lease).await,
            _ => fail(&*store, lease).await,
        }
        let before = h.row(claimed.id).await;
        assert_refused(&*store, lease).await;
        assert_eq!(h.row(claimed.id).await, before, "verb {verb}");
    }
}

pub async fn a_released_claim_is_over(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.store().release(&[release(claimed.lease)]).await.expect("released");
    let before = h.row(claimed.id).await;
    assert_refused(&*h.store(), claimed.lease).await;
    assert_eq!(h.row(claimed.id).await, before);
}

pub async fn s0_85_s0_86_a_row_that_an_operator_finished_by_hand_is_not_settled(h: impl Harness) {
    for status in [State::Pending, State::Delivered, State::Dead] {
        let claimed = h.put_and_claim(message().deliver_after(Duration::ZERO)).await;
        h.set_status(claimed.id, status).await;
        let before = h.row(claimed.id).await;
        assert_eq!(before.locked_by, Some(claimed.lease.worker), "only the status was changed");
        assert_refused(&*h.store(), claimed.lease).await;
        assert_eq!(h.row(claimed.id).await, before, "{status:?}");
        h.set_status(claimed.id, State::Dead).await;
    }
}

pub async fn r20_a_swept_claim_is_over(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.expire().await;
    assert_eq!(h.sweep(1).await, [claimed.id]);
    let before = h.row(claimed.id).await;
    assert_refused(&*h.store(), claimed.lease).await;
    assert_eq!(h.row(claimed.id).await, before);
}

pub async fn a_late_settle_of_a_replayed_row_is_refused(h: impl Harness) {
    let worker = Uuid::new_v4();
    h.put(message()).await;
    let first = h.claim_one(worker).await;
    fail(&*h.store(), first.lease).await;
    let second = h.claim_one(worker).await;
    give_up(&*h.store(), second.lease).await;
    assert_eq!(h.store().replay(&replay_all()).await.expect("replayed"), [first.id]);
    // The numbers begin anew, and it is another worker's turn: neither number is live in the first worker's hands.
    let live = h.claim_one(Uuid::new_v4()).await;
    assert_eq!(live.attempts, 1);
    let before = h.row(first.id).await;
    for stale in [second.lease, first.lease] {
        assert_refused(&*h.store(), stale).await;
        assert_eq!(h.row(first.id).await, before);
    }
    ack(&*h.store(), live.lease).await;
}

/// Claims and acks until no row waits or runs; answers the ids whose ack was done. The leases are over as soon as
/// they begin, so workers take rows from each other all the time.
async fn work(store: Arc<dyn Store>) -> Vec<Uuid> {
    let (worker, mut done) = (Uuid::new_v4(), Vec::new());
    for round in 0..5_000 {
        let order = if round % 2 == 0 { ClaimOrder::Due } else { ClaimOrder::Suspects };
        let hasty =
            ClaimRequest { order, limit: 10, lease: Duration::ZERO, max_attempts: 1_000_000, ..request(worker) };
        let claimed = store.claim(&hasty).await.expect("the store claims").messages;
        let leases: Vec<Lease> = claimed.iter().map(|message| message.lease).collect();
        let answers = store.ack(&leases, Delivered::Keep).await.expect("the store acks");
        let acked = leases.iter().zip(answers).filter(|(_, answer)| *answer == Settled::Done);
        done.extend(acked.map(|(lease, _)| lease.id));
        let left = store.stats(&Scope::all()).await.expect("counted");
        if left.pending + left.processing == 0 {
            return done;
        }
    }
    panic!("the rows are never all delivered");
}

pub async fn s0_65_s0_90_workers_that_take_rows_from_each_other_ack_each_row_once(h: impl Harness) {
    const ROWS: usize = 200;
    h.enqueue_many((0..ROWS).map(|_| message()).collect()).await.expect("valid");
    let workers: Vec<_> = (0..6).map(|_| tokio::spawn(work(h.store()))).collect();
    let mut acked: HashMap<Uuid, usize> = HashMap::new();
    for worker in workers {
        for id in worker.await.expect("no worker panics") {
            *acked.entry(id).or_default() += 1;
        }
    }
    assert_eq!(acked.len(), ROWS);
    assert!(acked.values().all(|times| *times == 1), "one attempt of each row was acked");
}
