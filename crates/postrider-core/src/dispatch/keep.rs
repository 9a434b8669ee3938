//! Keeping leases: what is under way is renewed, what waits too long is given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::hand::trusted_until;
use super::queue::Waiting;
use super::shared::Shared;
use crate::sabotage::{self, Defect};
use crate::store::{ClaimedMessage, Release, Settled};

/// How many times per lease the keeper looks.
const LOOKS_PER_LEASE: u32 = 12;

/// Minds the leases until the dispatcher is done.
pub(super) async fn run(shared: Arc<Shared>) {
    let lease = shared.config.lease;
    loop {
        tokio::select! {
            biased;
            () = shared.retired.cancelled() => return,
            () = sleep(lease / LOOKS_PER_LEASE) => {}
        }
        let now = Instant::now();
        // Before the next look their trust would be over.
        give_back(&shared, shared.hand.take_expiring(now + lease / LOOKS_PER_LEASE), "they waited too long").await;
        renew(&shared, now + lease / 2).await;
        shared.hand.forget_idle_tenants(now);
    }
}

async fn renew(shared: &Shared, then: Instant) {
    let leases = shared.hand.flights_expiring(then);
    if leases.is_empty() || sabotage::has(Defect::LeaseNotRenewed) {
        return;
    }
    let (asked, lease) = (Instant::now(), shared.config.lease);
    // A failure was logged; the next look tries again. Where a lease was lost, settling will say so.
    if let Ok(renewed) = shared.call("extend", shared.store.extend(&leases, lease)).await {
        for lease in renewed.into_iter().flatten() {
            shared.hand.renewed(lease, trusted_until(asked, shared.config.lease));
        }
    }
}

/// Gives back everything that waits.
pub(super) async fn give_back_all(shared: &Shared) {
    give_back(shared, shared.hand.take_waiting(), "the dispatcher pauses or stops").await;
}

/// Gives rows back with their attempts.
async fn give_back(shared: &Shared, rows: Vec<Waiting>, why: &'static str) {
    if !rows.is_empty() {
        let rows: Vec<_> = rows.into_iter().map(|row| (row, Duration::ZERO)).collect();
        release(shared, &rows, why).await;
        shared.hand.note_given_back();
    }
}

/// Gives rows back with their attempts, each for a later time. It is sent once only: if the answer is lost the leases
/// decide.
pub(super) async fn release(shared: &Shared, rows: &[(Waiting, Duration)], why: &'static str) {
    let given = give(shared, rows.iter().map(|(row, delay)| (&row.message, *delay)).collect()).await;
    shared.metrics.released(given, why);
    shared.hand.done(rows.iter().map(|(row, _)| &row.message));
}

/// Gives back claimed rows that never came into hand, because their tenants are over their limits.
pub(super) async fn put_off(shared: &Shared, rows: &[(ClaimedMessage, Duration)]) {
    let given = give(shared, rows.iter().map(|(message, delay)| (message, *delay)).collect()).await;
    shared.metrics.put_off(given);
}

/// Answers how many were still ours to give; of the others it is said that they were not.
async fn give(shared: &Shared, rows: Vec<(&ClaimedMessage, Duration)>) -> usize {
    if rows.is_empty() {
        return 0;
    }
    let one =
        |(message, delay): &(&ClaimedMessage, Duration)| Release { lease: message.lease, delay: *delay, error: None };
    let releases: Vec<Release> = rows.iter().map(one).collect();
    let Ok(settled) = shared.call("release", shared.store.release(&releases)).await else { return 0 };
    let lost = rows.iter().zip(settled).filter(|(_, settled)| *settled == Settled::LeaseLost);
    rows.len() - lost.map(|((message, _), _)| shared.metrics.lease_lost(message, "release")).count()
}
