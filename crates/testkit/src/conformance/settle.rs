//! Writing outcomes back: what each verb writes, and one answer per message.

use std::time::Duration;

use postrider::store::{Delivered, Release};
use postrider::{ClaimedMessage, Lease, Settled, State};
use uuid::Uuid;

use super::harness::{Harness, RowView};
use super::scene::*;

fn assert_not_leased(row: &RowView) {
    assert_eq!((row.locked_by, row.locked_until), (None, None), "{row:?}");
}

pub async fn s0_15_s0_68_ack_marks_the_row_as_delivered(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.pass_time(SECOND).await;
    let before = h.now_micros().await;
    ack(&*h.store(), claimed.lease).await;
    let after = h.now_micros().await;
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.attempts), (State::Delivered, 1));
    assert_not_leased(&row);
    assert!((before..=after).contains(&row.delivered_at.expect("delivered")));
    assert!((before..=after).contains(&row.updated_at));
}

pub async fn s0_16_s0_69_s0_75_s0_76_nack_puts_the_row_back_with_its_error_and_without_its_lease(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    assert_eq!(h.store().nack(&[nack(claimed.lease, HOUR)]).await.expect("the store nacks"), [Settled::Done]);
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.attempts), (State::Pending, 1), "the attempt stays counted");
    assert_eq!(row.last_error.as_deref(), Some("broker down"));
    assert_eq!(row.delivered_at, None);
    assert_not_leased(&row);
}

pub async fn s0_79_nack_counts_the_delay_from_the_store_s_now(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.pass_time(SECOND).await;
    let before = h.now_micros().await;
    h.store().nack(&[nack(claimed.lease, Duration::from_micros(1_234_567))]).await.expect("the store nacks");
    let after = h.now_micros().await;
    let row = h.row(claimed.id).await;
    assert!((before + 1_234_567..=after + 1_234_567).contains(&row.next_attempt_at), "{row:?}");
}

pub async fn s0_81_bury_makes_the_row_dead_with_its_reason(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    give_up(&*h.store(), claimed.lease).await;
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.attempts, row.delivered_at), (State::Dead, 1, None));
    assert_eq!(row.last_error.as_deref(), Some("refused for good"));
    assert_not_leased(&row);
}

pub async fn c7_release_gives_the_attempt_back_and_keeps_the_due_time(h: impl Harness) {
    let id = h.put(message()).await;
    h.pass_time(SECOND).await;
    let due_at = h.row(id).await.next_attempt_at;
    let claimed = h.claim_one(Uuid::new_v4()).await;
    assert_eq!(h.store().release(&[release(claimed.lease)]).await.expect("released"), [Settled::Done]);
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts, row.next_attempt_at), (State::Pending, 0, due_at));
    assert_eq!(row.last_error, None);
    assert_not_leased(&row);
    assert_eq!(h.claim_one(Uuid::new_v4()).await.attempts, 1, "it can be claimed at once");
}

pub async fn c7_release_with_a_delay_waits_that_long_and_says_why(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    let before = h.now_micros().await;
    let later = Release { lease: claimed.lease, delay: HOUR, error: Some("the breaker is open".into()) };
    assert_eq!(h.store().release(&[later]).await.expect("released"), [Settled::Done]);
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.attempts), (State::Pending, 0));
    assert_eq!(row.last_error.as_deref(), Some("the breaker is open"));
    assert!(row.next_attempt_at >= before + micros(HOUR));
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
}

pub async fn c7_release_without_a_reason_keeps_the_last_error(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    fail(&*h.store(), claimed.lease).await;
    let again = h.claim_one(Uuid::new_v4()).await;
    h.store().release(&[release(again.lease)]).await.expect("released");
    let row = h.row(claimed.id).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (1, Some("broker down")));
}

pub async fn r17_extend_moves_the_end_of_the_lease_and_keeps_the_attempt(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.pass_time(LEASE - MINUTE).await;
    let before = h.now_micros().await;
    let renewed = h.store().extend(&[claimed.lease], LEASE).await.expect("extended")[0].expect("still ours");
    let after = h.now_micros().await;
    let row = h.row(claimed.id).await;
    let (earliest, latest) = (before + micros(LEASE), after + micros(LEASE));
    assert!((earliest..=latest).contains(&row.locked_until.expect("leased")));
    assert_eq!((row.status, row.attempts, row.locked_by), (State::Processing, 1, Some(claimed.lease.worker)));
    assert_eq!((renewed.id, renewed.worker, renewed.attempt), (claimed.id, claimed.lease.worker, 1));
    h.pass_time(MINUTE * 2).await;
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty(), "the old lease would have run out by now");
    ack(&*h.store(), renewed).await;
}

pub async fn r17_a_lease_from_before_its_renewal_still_settles(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    for _ in 0..3 {
        assert!(h.store().extend(&[claimed.lease], LEASE).await.expect("extended")[0].is_some());
    }
    ack(&*h.store(), claimed.lease).await;
}

pub async fn delivered_rows_are_deleted_if_asked(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    assert_eq!(h.store().ack(&[claimed.lease], Delivered::Delete).await.expect("acked"), [Settled::Done]);
    assert_eq!(h.rows().await, []);
    assert_eq!(h.store().ack(&[claimed.lease], Delivered::Delete).await.expect("answered"), [Settled::LeaseLost]);
}

pub async fn t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key(h: impl Harness) {
    h.put_all([message(), message().dedupe_key("k"), message()]).await;
    let claimed = h.claim_all(Uuid::new_v4()).await;
    let leases: Vec<Lease> = claimed.iter().map(|message| message.lease).collect();
    assert_eq!(h.store().ack(&leases, Delivered::Delete).await.expect("acked"), [Settled::Done; 3]);
    let rows = h.rows().await;
    assert_eq!(rows.iter().map(|row| (row.id, row.status)).collect::<Vec<_>>(), [(claimed[1].id, State::Delivered)]);
    assert!(rows[0].delivered_at.is_some());
    let again = h.enqueue_many(vec![message().dedupe_key("k")]).await.expect("a duplicate is no error");
    assert_eq!(again[0].id(), claimed[1].id);
}

pub async fn s0_32_every_verb_says_when_it_touched_the_row(h: impl Harness) {
    for verb in 0..5 {
        let claimed = h.put_and_claim(message()).await;
        let (store, lease) = (h.store(), claimed.lease);
        h.pass_time(SECOND).await;
        let before = h.now_micros().await;
        match verb {
            0 => ack(&*store, lease).await,
            1 => drop(store.nack(&[nack(lease, HOUR)]).await.expect("nacked")),
            2 => give_up(&*store, lease).await,
            3 => drop(store.release(&[Release { delay: HOUR, ..release(lease) }]).await.expect("released")),
            _ => drop(store.extend(&[lease], HOUR).await.expect("extended")),
        }
        assert!(h.row(claimed.id).await.updated_at >= before, "verb {verb}");
    }
}

pub async fn a_batch_of_nothing_is_fine(h: impl Harness) {
    let store = h.store();
    assert!(store.ack(&[], Delivered::Keep).await.expect("fine").is_empty());
    assert!(store.ack(&[], Delivered::Delete).await.expect("fine").is_empty());
    assert!(store.nack(&[]).await.expect("fine").is_empty());
    assert!(store.bury(&[]).await.expect("fine").is_empty());
    assert!(store.release(&[]).await.expect("fine").is_empty());
    assert!(store.extend(&[], LEASE).await.expect("fine").is_empty());
}

/// Six claims of which every second one is stale; the answers must say so, in this order.
async fn mixed(h: &impl Harness) -> Vec<Lease> {
    h.put_all((0..6).map(|_| message())).await;
    let claimed: Vec<ClaimedMessage> = h.claim_all(Uuid::new_v4()).await;
    let stale = |(at, message): (usize, &ClaimedMessage)| match at % 2 {
        0 => message.lease,
        _ => Lease { attempt: message.lease.attempt + 1, ..message.lease },
    };
    claimed.iter().enumerate().map(stale).collect()
}

async fn assert_mixed(h: &impl Harness, leases: &[Lease], answers: &[Settled], good: State) {
    let expected = [Settled::Done, Settled::LeaseLost].repeat(3);
    assert_eq!(answers, expected);
    for (at, lease) in leases.iter().enumerate() {
        let status = h.find(lease.id).await.map(|row| row.status);
        let wanted = if at % 2 == 0 { good } else { State::Processing };
        assert!(status == Some(wanted) || (at % 2 == 0 && status.is_none()), "message {at} is {status:?}");
    }
}

pub async fn r13_ack_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let answers = h.store().ack(&leases, Delivered::Keep).await.expect("acked");
    assert_mixed(&h, &leases, &answers, State::Delivered).await;
}

pub async fn r13_deleting_ack_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let answers = h.store().ack(&leases, Delivered::Delete).await.expect("acked");
    assert_mixed(&h, &leases, &answers, State::Delivered).await;
    assert_eq!(h.rows().await.len(), 3);
}

pub async fn r13_nack_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let nacks: Vec<_> = leases.iter().map(|lease| nack(*lease, SECOND)).collect();
    assert_mixed(&h, &leases, &h.store().nack(&nacks).await.expect("nacked"), State::Pending).await;
}

pub async fn r13_bury_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let buries: Vec<_> = leases.iter().map(|lease| bury(*lease)).collect();
    assert_mixed(&h, &leases, &h.store().bury(&buries).await.expect("buried"), State::Dead).await;
}

pub async fn r13_release_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let releases: Vec<_> = leases.iter().map(|lease| release(*lease)).collect();
    assert_mixed(&h, &leases, &h.store().release(&releases).await.expect("released"), State::Pending).await;
}

pub async fn r13_extend_answers_for_each_message_of_a_mixed_batch(h: impl Harness) {
    let leases = mixed(&h).await;
    let answers = h.store().extend(&leases, LEASE).await.expect("extended");
    for (at, (lease, answer)) in leases.iter().zip(&answers).enumerate() {
        assert_eq!(answer.map(|lease| lease.id), (at % 2 == 0).then_some(lease.id));
    }
    let renewed: Vec<Lease> = answers.into_iter().flatten().collect();
    assert_eq!(h.store().ack(&renewed, Delivered::Keep).await.expect("acked"), [Settled::Done; 3]);
}

pub async fn each_message_of_a_batch_gets_its_own_delay_and_error(h: impl Harness) {
    h.put_all((0..4).map(|_| message())).await;
    let claimed = h.claim_all(Uuid::new_v4()).await;
    let before = h.now_micros().await;
    let nacks = (1..).zip(claimed.iter().rev()).map(|(hours, message)| {
        let mut nack = nack(message.lease, HOUR * hours);
        nack.error = format!("error {hours}");
        nack
    });
    let nacks: Vec<_> = nacks.collect();
    h.store().nack(&nacks).await.expect("nacked");
    for (at, nack) in nacks.iter().enumerate() {
        let row = h.row(nack.lease.id).await;
        assert_eq!(row.last_error, Some(format!("error {}", at + 1)));
        assert_eq!((row.next_attempt_at - before) / micros(HOUR), i64::try_from(at).expect("small") + 1);
    }
}

pub async fn a_large_batch_settles_as_one(h: impl Harness) {
    h.enqueue_many((0..500).map(|_| message()).collect()).await.expect("valid");
    let mut request = request(Uuid::new_v4());
    request.limit = 500;
    let leases: Vec<Lease> = h.claim(&request).await.iter().map(|message| message.lease).collect();
    assert_eq!(h.store().ack(&leases, Delivered::Keep).await.expect("acked"), [Settled::Done; 500]);
    assert!(h.rows().await.iter().all(|row| row.status == State::Delivered));
}
