//! Each invariant finds the breach that is planted for it, in a story that is sound without it.

use super::*;

const CLAIM: i64 = 1_000_000;

/// Three messages of one key: claimed, arrived, delivered.
fn sound() -> Evidence {
    let worker = Uuid::from_u128(100);
    let mut evidence = Evidence { grain: 0, ..Evidence::default() };
    for number in 1..=3_i64 {
        let (id, at) = (Uuid::from_u128(number as u128), CLAIM + number * 1_000);
        let contents = Some(number as u64);
        let (lane, place) = (Some("key".to_owned()), number);
        evidence.ledger.push(Entry { id, contents, lane, place, is_doomed: false });
        let (state, attempts) = (State::Delivered, 1);
        evidence.rows.push(Row { id, state, attempts, max_attempts: None, overdue_micros: 0, contents: None });
        evidence.arrivals.push(Arrival { id, attempt: 1, contents: number as u64, at: at + 100 });
        let claim = Change {
            id,
            at,
            decided_at: at,
            was: State::Pending,
            became: Some(State::Processing),
            attempts_were: 0,
            attempts: 1,
            locked_until_was: None,
            locked_by_was: None,
            locked_by: Some(worker),
            made_by: "relay".into(),
        };
        let delivered = Change {
            at: at + 200,
            decided_at: at + 200,
            was: State::Processing,
            became: Some(State::Delivered),
            attempts_were: 1,
            locked_until_was: Some(at + 10_000),
            locked_by_was: Some(worker),
            locked_by: None,
            ..claim.clone()
        };
        evidence.changes.extend([claim, delivered]);
    }
    evidence
}

fn bounds() -> Bounds {
    Bounds { max_attempts: 10, overdue: Duration::from_secs(1), ..Bounds::default() }
}

#[track_caller]
fn finds(expected: &str, plant: impl FnOnce(&mut Evidence)) {
    let mut evidence = sound();
    assert_eq!(judge(&evidence, &bounds()), Vec::<String>::new());
    plant(&mut evidence);
    let found = judge(&evidence, &bounds());
    assert!(found.iter().any(|line| line.starts_with(expected)), "expected `{expected}`, found {found:#?}");
}

#[test]
fn i1_ledger_and_outbox_agree() {
    finds("I1: 1 in the ledger and not", |evidence| evidence.rows.truncate(evidence.rows.len() - 1));
    finds("I1: 1 in the ledger and not", |evidence| drop(evidence.ledger.pop()));
    let told = Bounds { told: vec![Uuid::nil()], ..bounds() };
    assert!(judge(&sound(), &told)[0].starts_with("I1: 1 told to be committed"));
}

#[test]
fn i2_what_is_not_dead_is_delivered_and_arrived() {
    finds("I2: 1 neither dead", |evidence| evidence.arrivals.truncate(evidence.arrivals.len() - 1));
    finds("I2: 1 neither dead", |evidence| evidence.rows[0].state = State::Pending);
}

#[test]
fn i3_what_arrives_was_committed_like_that() {
    finds("I3: 1 arrived", |evidence| evidence.arrivals[0].contents = 7);
    finds("I3: 1 arrived", |evidence| evidence.arrivals[0].id = Uuid::nil());
}

#[test]
fn i4_repeats_are_within_the_bound() {
    let again = |evidence: &mut Evidence| evidence.arrivals.push(evidence.arrivals[2].clone());
    finds("I4: 1 duplicates, at most 0", again);
    let mut evidence = sound();
    again(&mut evidence);
    assert!(judge(&evidence, &Bounds { duplicates: 1, ..bounds() }).is_empty());
}

#[test]
fn i5_first_arrivals_of_a_key_are_in_order_and_repeats_do_not_count() {
    finds("I5: 1 overtaken", |evidence| evidence.arrivals.swap(0, 1));
    let mut evidence = sound();
    evidence.arrivals.push(evidence.arrivals[0].clone());
    assert!(judge(&evidence, &Bounds { duplicates: 1, ..bounds() }).is_empty());
    evidence.ledger.iter_mut().for_each(|entry| entry.lane = None);
    evidence.arrivals.swap(0, 1);
    assert!(judge(&evidence, &Bounds { duplicates: 1, ..bounds() }).is_empty(), "no order was asked for");
}

#[test]
fn i6_changes_are_edges_of_the_state_machine() {
    finds("I6: processing became delivered with +1", |evidence| evidence.changes[1].attempts = 2);
    finds("I6: pending became processing with +0", |evidence| evidence.changes[0].attempts = 0);
    finds("I6: delivered became pending", |evidence| {
        (evidence.changes[1].was, evidence.changes[1].became) = (State::Delivered, Some(State::Pending));
    });
    finds("I6: delivered became deleted", |evidence| {
        (evidence.changes[1].was, evidence.changes[1].became) = (State::Delivered, None);
    });
}

#[test]
fn i6_a_release_gives_the_attempt_back_and_a_nack_keeps_it() {
    let (pending, processing) = (State::Pending, State::Processing);
    assert!(is_edge(processing, Some(pending), 0) && is_edge(processing, Some(pending), -1));
    assert!(!is_edge(processing, Some(State::Dead), -1) && !is_edge(processing, Some(processing), 2));
}

#[test]
fn i6_only_the_holder_settles_and_only_what_has_arrived() {
    finds("I6: 1 settled by a worker that did not hold", |evidence| evidence.changes[1].made_by = "thief".into());
    finds("I6: 1 settled by a worker that did not hold", |evidence| {
        evidence.changes[1].locked_by_was = Some(Uuid::nil());
    });
    finds("I6: 1 delivered by an attempt that had not arrived", |evidence| evidence.arrivals[0].attempt = 2);
    finds("I6: 1 delivered by an attempt that had not arrived", |evidence| evidence.arrivals[0].at += 500);
}

#[test]
fn i6_a_destination_that_drops_repeats_has_it_by_an_earlier_attempt() {
    let again = |evidence: &mut Evidence| {
        evidence.rows[0].attempts = 2;
        evidence.changes[0].attempts = 1;
        evidence.changes[1].attempts = 2;
        evidence.changes[1].attempts_were = 2;
    };
    finds("I6: 1 delivered by an attempt that had not arrived", again);
    let mut evidence = sound();
    again(&mut evidence);
    evidence.drops_repeats = true;
    assert!(judge(&evidence, &bounds()).is_empty());
    evidence.arrivals[0].at += 500;
    assert_eq!(judge(&evidence, &bounds()).len(), 1, "it must have been there before");
}

#[test]
fn i6_nobody_claims_under_a_lease_that_is_good() {
    finds("I6: 1 claimed while another lease", |evidence| {
        let claim = evidence.changes[0].clone();
        let end = Some(claim.at + 1);
        evidence.changes.push(Change { was: State::Processing, locked_until_was: end, ..claim });
    });
}

#[test]
fn i7_no_lease_is_forgotten() {
    finds("I7: 1 under a lease", |evidence| {
        (evidence.rows[0].state, evidence.rows[0].overdue_micros) = (State::Processing, 2_000_000);
    });
}

#[test]
fn i8_dead_if_and_only_if_spent_or_refused() {
    finds("I8: 1 more attempts", |evidence| evidence.rows[0].attempts = 11);
    finds("I8: 1 more attempts", |evidence| evidence.rows[0].state = State::Dead);
    finds("I8: 1 more attempts", |evidence| evidence.ledger[0].is_doomed = true);
    let mut evidence = sound();
    (evidence.rows[2].state, evidence.ledger[2].is_doomed) = (State::Dead, true);
    assert!(judge(&evidence, &bounds()).is_empty(), "refused for good");
}

#[test]
fn the_report_counts_reclaims_and_their_lag() {
    let mut evidence = sound();
    let claim = evidence.changes[0].clone();
    let end = Some(claim.at - 700);
    evidence.changes.push(Change { was: State::Processing, locked_until_was: end, ..claim });
    let report = report(&evidence);
    assert_eq!((report.messages, report.dead, report.duplicates, report.reclaims), (3, 0, 0, 1));
    assert_eq!(report.slowest_reclaim, Duration::from_micros(700));
}
