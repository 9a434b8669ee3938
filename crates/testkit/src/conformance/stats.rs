//! Counting what waits, and saying when the next row becomes eligible.

use std::time::Duration;

use postrider::store::{Scope, Stats};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

async fn next_due(h: &impl Harness, scope: &Scope) -> Option<Duration> {
    h.store().next_due(scope).await.expect("the store looks")
}

/// Whether a time is what is expected, or a little less because the store's clock goes on.
fn about(time: Option<Duration>, expected: Duration) -> bool {
    time.is_some_and(|time| time <= expected && time + MINUTE > expected)
}

/// One row of each kind, two of them due.
async fn one_of_each(h: &impl Harness) {
    let delivered = h.put_and_claim(message()).await;
    ack(&*h.store(), delivered.lease).await;
    let dead = h.put_and_claim(message()).await;
    give_up(&*h.store(), dead.lease).await;
    h.put_and_claim(message()).await;
    h.put_all([message(), message(), message().deliver_after(HOUR)]).await;
}

pub async fn s0_6_stats_count_what_waits_runs_and_is_dead(h: impl Harness) {
    one_of_each(&h).await;
    let stats = h.store().stats(&Scope::all()).await.expect("counted");
    assert_eq!((stats.pending, stats.due, stats.processing, stats.dead), (3, 2, 1, 1));
}

pub async fn stats_say_for_how_long_the_oldest_due_row_waits(h: impl Harness) {
    h.put(message()).await;
    h.pass_time(HOUR).await;
    h.put(message()).await;
    let oldest = h.store().stats(&Scope::all()).await.expect("counted").oldest_due;
    assert!(oldest >= HOUR && oldest < HOUR + MINUTE, "{oldest:?}");
}

pub async fn stats_of_nothing_are_zero(h: impl Harness) {
    assert_eq!(h.store().stats(&Scope::all()).await.expect("counted"), Stats::default());
    h.put(message().deliver_after(HOUR)).await;
    let stats = h.store().stats(&Scope::all()).await.expect("counted");
    assert_eq!(stats, Stats { pending: 1, ..Stats::default() });
}

pub async fn stats_keep_to_their_scope(h: impl Harness) {
    one_of_each(&h).await;
    let tenant = Uuid::new_v4();
    h.put_all([message_in("other", "t"), message_in("other", "t").tenant(tenant)]).await;
    let count = |scope: Scope| {
        let store = h.store();
        async move { store.stats(&scope).await.expect("counted").pending }
    };
    assert_eq!(count(Scope::namespace("other")).await, 2);
    assert_eq!(count(Scope { namespaces: None, tenant: Some(tenant) }).await, 1);
    assert_eq!(count(Scope { namespaces: Some(vec!["shop".into()]), tenant: Some(tenant) }).await, 0);
}

pub async fn next_due_is_nothing_when_no_row_waits_or_runs(h: impl Harness) {
    assert_eq!(next_due(&h, &Scope::all()).await, None);
    let delivered = h.put_and_claim(message()).await;
    ack(&*h.store(), delivered.lease).await;
    let dead = h.put_and_claim(message()).await;
    give_up(&*h.store(), dead.lease).await;
    assert_eq!(next_due(&h, &Scope::all()).await, None);
}

pub async fn next_due_is_the_time_of_the_next_delayed_row(h: impl Harness) {
    h.put_all([message().deliver_after(HOUR * 2), message_in("other", "t").deliver_after(HOUR)]).await;
    assert!(about(next_due(&h, &Scope::all()).await, HOUR));
    assert!(about(next_due(&h, &Scope::namespace("shop")).await, HOUR * 2));
    h.pass_time(HOUR / 2).await;
    assert!(about(next_due(&h, &Scope::all()).await, HOUR / 2));
}

pub async fn next_due_is_the_end_of_the_next_lease(h: impl Harness) {
    h.put_and_claim(message()).await;
    h.put(message().deliver_after(HOUR)).await;
    assert!(about(next_due(&h, &Scope::all()).await, LEASE));
}

pub async fn next_due_is_zero_when_a_row_is_due(h: impl Harness) {
    h.put(message()).await;
    h.pass_time(SECOND).await;
    assert_eq!(next_due(&h, &Scope::all()).await, Some(Duration::ZERO));
}

pub async fn next_due_keeps_to_its_scope(h: impl Harness) {
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    h.put_all([message().tenant(theirs), message().tenant(ours).deliver_after(HOUR)]).await;
    h.pass_time(SECOND).await;
    for namespaces in [None, Some(vec!["shop".to_owned()])] {
        let scope = Scope { namespaces, tenant: Some(ours) };
        assert!(about(next_due(&h, &scope).await, HOUR), "another tenant's due row is none of ours");
    }
    assert_eq!(next_due(&h, &Scope::namespace("other")).await, None);
}
