//! Rows that nobody holds: burying what is spent, deleting what is old.

use postrider::store::{Finished, Purge, Scope};
use postrider::{Message, State};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

pub(super) async fn dead(h: &impl Harness, message: Message) -> Uuid {
    let claimed = h.put_and_claim(message).await;
    give_up(&*h.store(), claimed.lease).await;
    claimed.id
}

pub(super) async fn delivered(h: &impl Harness, message: Message) -> Uuid {
    let claimed = h.put_and_claim(message).await;
    ack(&*h.store(), claimed.lease).await;
    claimed.id
}

pub async fn r20_s0_55_a_row_whose_last_attempt_crashed_is_buried_and_says_delivery_unknown(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.expire().await;
    let before = h.now_micros().await;
    assert_eq!(h.sweep(1).await, [claimed.id]);
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.attempts, row.locked_by, row.locked_until), (State::Dead, 1, None, None));
    assert!(row.updated_at >= before);
    let error = row.last_error.expect("it says why");
    assert!(error.starts_with("delivery unknown: "), "{error}");
    assert!(error.contains("the last allowed attempt (1)"), "{error}");
    assert_eq!(h.sweep(1).await, NONE, "a second sweep finds nothing");
}

pub async fn s0_55_s0_82_pending_rows_over_a_lowered_limit_are_buried_and_keep_their_error(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    fail(&*h.store(), claimed.lease).await;
    assert_eq!(h.sweep(2).await, NONE);
    assert_eq!(h.sweep(1).await, [claimed.id]);
    let row = h.row(claimed.id).await;
    assert_eq!(row.status, State::Dead);
    assert_eq!(row.last_error.as_deref(), Some("broker down (given up: all 1 attempts are spent)"));
}

pub async fn i8_the_sweep_leaves_rows_with_attempts_left_alone(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.put(message()).await;
    h.expire().await;
    let before = h.rows().await;
    assert_eq!(h.sweep(2).await, NONE);
    assert_eq!(h.rows().await, before);
    assert_eq!(h.row(claimed.id).await.status, State::Processing);
}

pub async fn t04_the_sweep_never_touches_a_live_lease_or_a_finished_row(h: impl Harness) {
    delivered(&h, message()).await;
    dead(&h, message()).await;
    let live = h.put_and_claim(message()).await;
    h.pass_time(LEASE - MINUTE).await;
    let before = h.rows().await;
    assert_eq!(h.sweep(1).await, NONE);
    assert_eq!(h.rows().await, before);
    ack(&*h.store(), live.lease).await;
}

pub async fn the_sweep_leaves_backoffs_alone(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.store().nack(&[nack(claimed.lease, HOUR)]).await.expect("nacked");
    assert_eq!(h.sweep(1).await, NONE, "it is buried when its time comes");
    h.pass_time(HOUR).await;
    assert_eq!(h.sweep(1).await, [claimed.id]);
}

pub async fn c12_the_sweep_goes_by_a_row_s_own_number(h: impl Harness) {
    let fewer = h.put_and_claim(message().max_attempts(1)).await;
    let more = h.put_and_claim(message().max_attempts(5)).await;
    h.expire().await;
    assert_eq!(h.sweep(3).await, [fewer.id]);
    assert_eq!(h.sweep(1).await, NONE);
    assert_eq!(h.row(more.id).await.status, State::Processing);
}

pub async fn the_sweep_keeps_to_its_scope(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let placed = h.put_all([message_in("a", "t"), message_in("b", "t"), message_in("b", "t").tenant(tenant)]).await;
    h.claim_all(Uuid::new_v4()).await;
    h.expire().await;
    let sweep = |scope: Scope| {
        let store = h.store();
        async move { store.sweep(&scope, 1, 100).await.expect("swept").buried }
    };
    assert_eq!(sweep(Scope { namespaces: None, tenant: Some(tenant) }).await, [placed[2]]);
    assert_eq!(sweep(Scope::namespace("a")).await, [placed[0]]);
    assert_eq!(sweep(Scope::all()).await, [placed[1]]);
}

pub async fn the_sweep_works_in_portions(h: impl Harness) {
    h.put_all((0..5).map(|_| message())).await;
    h.claim_all(Uuid::new_v4()).await;
    h.expire().await;
    let mut portions = Vec::new();
    for _ in 0..3 {
        portions.push(h.store().sweep(&Scope::all(), 1, 2).await.expect("swept").buried.len());
    }
    assert_eq!(portions, [2, 2, 1]);
}

pub async fn t42_purge_deletes_delivered_rows_of_the_age_only(h: impl Harness) {
    delivered(&h, message()).await;
    h.pass_time(HOUR).await;
    let young = delivered(&h, message()).await;
    let store = h.store();
    assert_eq!(store.purge(&purge(Finished::Delivered, HOUR * 2)).await.expect("purged"), 0);
    assert_eq!(store.purge(&purge(Finished::Delivered, HOUR / 2)).await.expect("purged"), 1);
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), [young]);
}

pub async fn purge_tells_delivered_from_dead(h: impl Harness) {
    let (delivered, dead) = (delivered(&h, message()).await, dead(&h, message()).await);
    h.pass_time(HOUR).await;
    assert_eq!(h.store().purge(&purge(Finished::Dead, SECOND)).await.expect("purged"), 1);
    assert!(h.find(dead).await.is_none() && h.find(delivered).await.is_some());
    assert_eq!(h.store().purge(&purge(Finished::Delivered, SECOND)).await.expect("purged"), 1);
    assert_eq!(h.rows().await, []);
}

pub async fn r41_purge_never_deletes_rows_that_wait_or_run(h: impl Harness) {
    let replayed = dead(&h, message()).await;
    h.store().replay(&replay_all()).await.expect("replayed");
    h.claim_all(Uuid::new_v4()).await;
    let waiting = h.put(message()).await;
    h.pass_time(HOUR * 24).await;
    for finished in [Finished::Delivered, Finished::Dead] {
        assert_eq!(h.store().purge(&purge(finished, SECOND)).await.expect("purged"), 0);
    }
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), [replayed, waiting]);
}

pub async fn t42_purge_works_in_portions_oldest_first(h: impl Harness) {
    let mut placed = Vec::new();
    for _ in 0..5 {
        placed.push(delivered(&h, message()).await);
        h.pass_time(SECOND).await;
    }
    let two = Purge { limit: 2, ..purge(Finished::Delivered, std::time::Duration::ZERO) };
    assert_eq!(h.store().purge(&two).await.expect("purged"), 2);
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), placed[2..]);
    assert_eq!(h.store().purge(&two).await.expect("purged"), 2);
    assert_eq!(h.store().purge(&two).await.expect("purged"), 1);
}

pub async fn s08_purge_keeps_to_its_scope(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let kept = delivered(&h, message_in("a", "t")).await;
    delivered(&h, message_in("b", "t")).await;
    delivered(&h, message_in("a", "t").tenant(tenant)).await;
    h.pass_time(HOUR).await;
    for scope in [Scope::namespace("b"), Scope { namespaces: None, tenant: Some(tenant) }] {
        let scoped = Purge { scope, ..purge(Finished::Delivered, SECOND) };
        assert_eq!(h.store().purge(&scoped).await.expect("purged"), 1);
    }
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), [kept]);
}

pub async fn a_purged_row_frees_its_dedupe_key(h: impl Harness) {
    delivered(&h, message().dedupe_key("k")).await;
    h.pass_time(HOUR).await;
    assert_eq!(h.store().purge(&purge(Finished::Delivered, SECOND)).await.expect("purged"), 1);
    h.put(message().dedupe_key("k")).await;
}
