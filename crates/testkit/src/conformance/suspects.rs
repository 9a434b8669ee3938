//! Rows that may kill their worker are set apart, so that they do not take their neighbours' attempts with them.

use postrider::store::{ClaimRequest, Scope};
use postrider::{ClaimedMessage, State};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

/// A row whose workers died this many times in a row.
async fn crashed(h: &impl Harness, times: i32, max_attempts: i32) -> ClaimedMessage {
    let request = |worker| ClaimRequest { max_attempts, ..request(worker) };
    let mut last = None;
    for _ in 0..times {
        let mut claimed = h.claim(&request(Uuid::new_v4())).await;
        assert_eq!(claimed.len(), 1, "the row can still be claimed in the usual way");
        last = claimed.pop();
        h.expire().await;
    }
    last.expect("it crashed at least once")
}

async fn suspects_wait(h: &impl Harness, max_attempts: i32) -> bool {
    h.store().sweep(&Scope::all(), max_attempts, 100).await.expect("the store sweeps").suspects
}

pub async fn r21_one_crash_does_not_make_a_row_suspect(h: impl Harness) {
    h.put(message()).await;
    crashed(&h, 1, MAX_ATTEMPTS).await;
    assert!(!suspects_wait(&h, MAX_ATTEMPTS).await);
    assert!(h.claim(&suspects()).await.is_empty());
    h.claim_one(Uuid::new_v4()).await;
}

pub async fn r21_after_two_crashes_a_row_is_claimed_as_a_suspect_only(h: impl Harness) {
    h.put(message()).await;
    let last = crashed(&h, 2, MAX_ATTEMPTS).await;
    assert!(suspects_wait(&h, MAX_ATTEMPTS).await);
    let neighbour = h.put(message()).await;
    assert_eq!(ids(&h.claim_all(Uuid::new_v4()).await), [neighbour], "the ordinary claim leaves it out");
    let alone = h.claim(&suspects()).await;
    assert_eq!(ids(&alone), [last.id]);
    assert_eq!(alone[0].attempts, 3);
    assert!(!suspects_wait(&h, MAX_ATTEMPTS).await, "it is leased again");
}

pub async fn r21_before_the_last_allowed_attempt_a_crashed_row_is_suspect(h: impl Harness) {
    h.put(message()).await;
    let last = crashed(&h, 1, 2).await;
    assert!(suspects_wait(&h, 2).await);
    assert!(h.claim(&ClaimRequest { max_attempts: 2, ..request(Uuid::new_v4()) }).await.is_empty());
    let alone = h.claim(&ClaimRequest { max_attempts: 2, ..suspects() }).await;
    assert_eq!((alone[0].id, alone[0].attempts), (last.id, 2));
}

pub async fn r21_the_last_attempt_is_counted_by_the_row_s_own_number(h: impl Harness) {
    h.put(message().max_attempts(2)).await;
    crashed(&h, 1, MAX_ATTEMPTS).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    assert_eq!(h.claim(&suspects()).await.len(), 1);
}

pub async fn r21_suspects_are_claimed_one_at_a_time_if_asked(h: impl Harness) {
    for _ in 0..2 {
        h.put(message().max_attempts(2)).await;
        crashed(&h, 1, MAX_ATTEMPTS).await;
    }
    let one = ClaimRequest { limit: 1, ..suspects() };
    let (first, second) = (h.claim(&one).await, h.claim(&one).await);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].id, second[0].id);
}

pub async fn r21_a_suspect_that_is_delivered_is_finished(h: impl Harness) {
    h.put(message()).await;
    crashed(&h, 2, MAX_ATTEMPTS).await;
    let alone = h.claim(&suspects()).await;
    ack(&*h.store(), alone[0].lease).await;
    assert_eq!(h.row(alone[0].id).await.status, State::Delivered);
    assert!(!suspects_wait(&h, MAX_ATTEMPTS).await);
}

pub async fn r21_clean_failures_do_not_make_a_row_suspect(h: impl Harness) {
    h.put(message()).await;
    for attempt in 1..=5 {
        let claimed = h.claim_one(Uuid::new_v4()).await;
        assert_eq!(claimed.attempts, attempt);
        fail(&*h.store(), claimed.lease).await;
    }
    assert!(!suspects_wait(&h, MAX_ATTEMPTS).await);
}

pub async fn r21_a_live_lease_is_no_suspect(h: impl Harness) {
    h.put(message()).await;
    crashed(&h, 2, MAX_ATTEMPTS).await;
    h.claim(&suspects()).await;
    h.pass_time(LEASE - MINUTE).await;
    assert!(!suspects_wait(&h, MAX_ATTEMPTS).await);
    assert!(h.claim(&suspects()).await.is_empty());
}

pub async fn r21_suspects_keep_to_the_scope(h: impl Harness) {
    h.put(message_in("a", "t")).await;
    crashed(&h, 2, MAX_ATTEMPTS).await;
    let elsewhere = Scope::namespace("b");
    assert!(!h.store().sweep(&elsewhere, MAX_ATTEMPTS, 10).await.expect("the store sweeps").suspects);
    assert!(h.claim(&ClaimRequest { scope: elsewhere, ..suspects() }).await.is_empty());
}
