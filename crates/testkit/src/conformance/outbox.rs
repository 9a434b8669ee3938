//! The low-level API on top of the store: claim a batch, ack or nack by id.

use std::sync::Arc;
use std::time::Duration;

use postrider::outbox::{ClaimCfg, OutboxMessage, OutboxStore};
use postrider::{ExponentialBackoff, State, StoreError, StoreErrorKind};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

const CFG: ClaimCfg = ClaimCfg { batch_size: 10, lease_duration: LEASE, max_attempts: 3 };

fn outbox(h: &impl Harness) -> OutboxStore {
    OutboxStore::new(h.store(), Uuid::new_v4(), "shop")
}

/// A store whose jitter is decided here: 0.0 is half of the delay, 1.0 all of it.
fn outbox_with(h: &impl Harness, random: f64) -> OutboxStore {
    let policy = ExponentialBackoff { base_delay: Duration::from_secs(10), max_delay: Duration::from_secs(30) };
    outbox(h).with_retry(policy, Arc::new(move || random))
}

fn assert_lease_lost(result: Result<(), StoreError>) {
    assert_eq!(result.expect_err("the lease is lost").kind(), StoreErrorKind::LeaseLost);
}

pub async fn s0_10_s0_12_a_message_of_plain_fields_comes_through(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let payload = serde_json::json!({"turn": 1});
    let dedupe_key = Some(format!("{tenant}/turn/request"));
    let sent = OutboxMessage { namespace: "shop", topic: "t", tenant_id: Some(tenant), dedupe_key, payload };
    let id = h.put(sent.clone().into()).await;
    let claimed = outbox(&h).claim_batch(CFG).await.expect("claimed").remove(0);
    assert_eq!((claimed.id, claimed.attempts), (id, 1));
    assert_eq!((claimed.namespace.as_str(), claimed.topic.as_str()), ("shop", "t"));
    assert_eq!((claimed.tenant_id, claimed.dedupe_key.clone()), (sent.tenant_id, sent.dedupe_key));
    assert_eq!(claimed.payload.to_value().expect("JSON"), sent.payload);
}

pub async fn s0_13_s0_14_s0_17_claim_batch_takes_its_own_namespace_up_to_its_size(h: impl Harness) {
    h.put_all((0..3).map(|_| message_in("other", "t"))).await;
    let placed = h.put_all((0..12).map(|_| message())).await;
    let outbox = outbox(&h);
    assert_eq!(ids(&outbox.claim_batch(CFG).await.expect("claimed")), placed[..10]);
    assert_eq!(ids(&outbox.claim_batch(CFG).await.expect("claimed")), placed[10..]);
    assert!(outbox.claim_batch(CFG).await.expect("claimed").is_empty());
    assert_eq!(h.row(placed[0]).await.locked_by, Some(outbox.worker_id));
}

/// What an application might call its errors.
#[derive(Debug)]
struct OwnError(StoreErrorKind);

impl From<StoreError> for OwnError {
    fn from(error: StoreError) -> Self {
        Self(error.kind())
    }
}

pub async fn s0_13_errors_are_of_the_application_s_own_type(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox: OutboxStore<OwnError> = OutboxStore::new(h.store(), Uuid::new_v4(), "shop");
    let refused = outbox.ack(id).await.expect_err("nobody has claimed it");
    assert_eq!(refused.0, StoreErrorKind::LeaseLost);
    assert_eq!(ids(&outbox.claim_batch(CFG).await.expect("claimed")), [id]);
    outbox.ack(id).await.expect("acked");
}

pub async fn s0_15_ack_by_id_delivers(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox(&h);
    outbox.claim_batch(CFG).await.expect("claimed");
    outbox.ack(id).await.expect("acked");
    assert_eq!(h.row(id).await.status, State::Delivered);
    assert_lease_lost(outbox.ack(id).await);
}

pub async fn s0_71_s0_72_ack_after_another_worker_took_over_is_an_error(h: impl Harness) {
    let id = h.put(message()).await;
    let (slow, quick) = (outbox(&h), outbox(&h));
    slow.claim_batch(CFG).await.expect("claimed");
    h.expire().await;
    quick.claim_batch(CFG).await.expect("claimed");
    let before = h.row(id).await;
    assert_lease_lost(slow.ack(id).await);
    assert_eq!(h.row(id).await, before);
    quick.ack(id).await.expect("acked");
}

pub async fn s0_73_nack_after_another_worker_took_over_is_an_error(h: impl Harness) {
    let id = h.put(message()).await;
    let (slow, quick) = (outbox(&h), outbox(&h));
    slow.claim_batch(CFG).await.expect("claimed");
    h.expire().await;
    quick.claim_batch(CFG).await.expect("claimed");
    let before = h.row(id).await;
    assert_lease_lost(slow.nack(id, "too late").await);
    assert_eq!(h.row(id).await, before);
}

pub async fn s0_71_what_was_never_claimed_cannot_be_acked(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox(&h);
    assert_lease_lost(outbox.ack(id).await);
    assert_lease_lost(outbox.nack(Uuid::new_v4(), "unknown").await);
    assert_eq!(h.row(id).await.status, State::Pending);
}

pub async fn r14_ack_after_expiry_is_accepted_while_nobody_took_over(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox(&h);
    outbox.claim_batch(CFG).await.expect("claimed");
    h.expire().await;
    outbox.ack(id).await.expect("acked");
}

pub async fn s0_69_s0_77_s0_78_s0_79_nack_follows_the_retry_formula(h: impl Harness) {
    for (random, delays) in [(0.0, [5, 10, 15, 15]), (1.0, [10, 20, 30, 30]), (0.5, [7_500, 15_000, 22_500, 22_500])] {
        let unit = if random == 0.5 { 1_000 } else { 1_000_000 };
        let outbox = outbox_with(&h, random);
        let id = h.put(message()).await;
        for (attempt, delay) in (1..).zip(delays) {
            let claimed = outbox.claim_batch(ClaimCfg { max_attempts: 9, ..CFG }).await.expect("claimed");
            assert_eq!(
                claimed.iter().map(|message| (message.id, message.attempts)).collect::<Vec<_>>(),
                [(id, attempt)]
            );
            let before = h.now_micros().await;
            outbox.nack(id, "no\0luck").await.expect("nacked");
            let after = h.now_micros().await;
            let row = h.row(id).await;
            let due_in = delay * unit;
            assert!((before + due_in..=after + due_in).contains(&row.next_attempt_at), "{random} {attempt}: {row:?}");
            assert_eq!((row.status, row.last_error.as_deref()), (State::Pending, Some("no luck")));
            h.pass_time(SECOND * 30).await;
        }
        h.set_status(id, State::Dead).await;
    }
}

pub async fn s0_58_s0_81_s0_86_the_last_failed_attempt_makes_the_row_dead(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox_with(&h, 0.0);
    for attempt in 1..=3 {
        assert_eq!(h.row(id).await.status, State::Pending);
        assert_eq!(outbox.claim_batch(CFG).await.expect("claimed")[0].attempts, attempt);
        outbox.nack(id, &format!("failure {attempt}")).await.expect("nacked");
        h.pass_time(HOUR).await;
    }
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (State::Dead, 3, Some("failure 3")));
    assert!(outbox.claim_batch(CFG).await.expect("claimed").is_empty());
}

pub async fn c12_a_row_s_own_number_decides_when_nack_buries(h: impl Harness) {
    let id = h.put(message().max_attempts(1)).await;
    let outbox = outbox(&h);
    outbox.claim_batch(CFG).await.expect("claimed");
    outbox.nack(id, "no").await.expect("nacked");
    assert_eq!(h.row(id).await.status, State::Dead);
}

pub async fn s0_92_failures_reschedule_later_and_later(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox_with(&h, 0.5);
    let mut waits = Vec::new();
    for _ in 0..3 {
        outbox.claim_batch(ClaimCfg { max_attempts: 9, ..CFG }).await.expect("claimed");
        outbox.nack(id, "no").await.expect("nacked");
        waits.push(h.row(id).await.next_attempt_at - h.now_micros().await);
        h.pass_time(HOUR).await;
    }
    assert!(waits.is_sorted() && waits[0] < waits[2], "{waits:?}");
}

pub async fn r20_s0_55_claim_batch_buries_rows_whose_last_attempt_crashed(h: impl Harness) {
    let id = h.put(message()).await;
    let outbox = outbox(&h);
    for attempt in 1..=3 {
        assert_eq!(outbox.claim_batch(CFG).await.expect("claimed")[0].attempts, attempt);
        h.expire().await;
    }
    assert!(outbox.claim_batch(CFG).await.expect("claimed").is_empty());
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts), (State::Dead, 3));
    assert!(row.last_error.expect("it says why").starts_with("delivery unknown"));
}

pub async fn r21_claim_batch_takes_a_suspect_alone(h: impl Harness) {
    let poison = h.put(message()).await;
    let outbox = outbox(&h);
    let cfg = ClaimCfg { max_attempts: 5, ..CFG };
    for _ in 0..2 {
        outbox.claim_batch(cfg).await.expect("claimed");
        h.expire().await;
    }
    let neighbours = h.put_all([message(), message()]).await;
    assert_eq!(ids(&outbox.claim_batch(cfg).await.expect("claimed")), [poison]);
    assert_eq!(ids(&outbox.claim_batch(cfg).await.expect("claimed")), neighbours);
}
