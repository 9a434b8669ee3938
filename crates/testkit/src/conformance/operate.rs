//! The operator's verbs: counting, looking, replaying, discarding, purging, and the audit table.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::operate::{AuditEntry, Change, Filter, LARGEST_CHANGE, Position, REPLAYED, Record, Tally};
use postrider::store::{Bury, ClaimRequest, Finished, Purge, Scope};
use postrider::{ClaimedMessage, Message, Operator, Payload, State, StoreErrorKind};
use serde_json::{Value, json};
use uuid::Uuid;

use super::harness::Harness;
use super::retain::{dead, delivered};
use super::scene::*;

/// Texts that would do harm if they became part of SQL.
const HOSTILE: [&str; 14] = [
    "'; drop table outbox_messages; --",
    "' or '1'='1",
    "\" or 1=1 --",
    "') or ('1'='1",
    "\\' or 1=1 #",
    "\\",
    "%",
    "_",
    "$1",
    "?1",
    "{table}",
    "/* */ or true",
    "' || pg_sleep(5) || '",
    "ʼ or 1=1 -- \u{1F600}",
];

/// Enqueues a message and lets it die of an error, whatever else there is.
async fn died_of(h: &impl Harness, message: Message, error: &str) -> Uuid {
    let id = h.put(message).await;
    let mut claimed = h.claim_all(Uuid::new_v4()).await;
    claimed.retain(|message| message.id == id);
    let bury = Bury { lease: claimed[0].lease, error: error.into() };
    h.store().bury(&[bury]).await.expect("buried");
    id
}

/// Lets so many messages die at the same time; answers their ids in order.
async fn died_together(h: &impl Harness, count: usize) -> Vec<Uuid> {
    h.enqueue_many((0..count).map(|_| message()).collect()).await.expect("enqueued");
    let claimed = h.claim(&ClaimRequest { limit: 1_000, ..request(Uuid::new_v4()) }).await;
    let buries: Vec<_> = claimed.iter().map(|message| bury(message.lease)).collect();
    h.store().bury(&buries).await.expect("buried");
    let mut ids = ids(&claimed);
    assert_eq!(ids.len(), count);
    ids.sort_unstable();
    ids
}

fn found(records: &[Record]) -> Vec<Uuid> {
    records.iter().map(|record| record.id).collect()
}

async fn list(store: &dyn Operator, filter: &Filter) -> Vec<Uuid> {
    found(&store.dead(filter, None, 100).await.expect("listed"))
}

async fn last_entry(store: &dyn Operator) -> AuditEntry {
    store.audit(1).await.expect("read").remove(0)
}

async fn lines(store: &dyn Operator) -> usize {
    store.audit(100).await.expect("read").len()
}

fn asked(entry: &AuditEntry) -> Value {
    serde_json::from_str(&entry.asked).expect("it is JSON")
}

fn all() -> Filter {
    Filter::default()
}

fn of_tenant(tenant: Uuid) -> Filter {
    Filter { scope: Scope { namespaces: None, tenant: Some(tenant) }, ..all() }
}

pub async fn t43_replay_puts_a_dead_row_back_with_all_its_attempts(h: impl Harness) {
    let id = dead(&h, message()).await;
    h.pass_time(HOUR).await;
    let before = h.now_micros().await;
    assert_eq!(h.store().replay(&replay_all()).await.expect("replayed"), [id]);
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts, row.locked_by, row.locked_until), (State::Pending, 0, None, None));
    assert!(row.next_attempt_at >= before && row.updated_at >= before);
    assert_eq!(row.last_error.as_deref(), Some("refused for good"), "the operator still sees why it died");
    assert_eq!(h.claim_one(Uuid::new_v4()).await.attempts, 1);
}

pub async fn s0_85_replay_and_discard_touch_dead_rows_only(h: impl Harness) {
    delivered(&h, message()).await;
    h.put_and_claim(message()).await;
    h.put(message()).await;
    let before = h.rows().await;
    let by_id = change(Filter { ids: Some(before.iter().map(|row| row.id).collect()), ..all() });
    for change in [replay_all(), by_id] {
        assert_eq!(h.store().replay(&change).await.expect("replayed"), NONE);
        assert_eq!(h.store().discard(&change).await.expect("discarded"), NONE);
    }
    assert_eq!(h.rows().await, before);
    assert_eq!(lines(&*h.store()).await, 0, "nothing was changed, so nothing is noted");
}

pub async fn a_row_that_was_made_dead_by_hand_is_listed_and_replayed_without_its_old_lease(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    h.set_status(claimed.id, State::Dead).await;
    let records = h.store().dead(&all(), None, 10).await.expect("listed");
    assert_eq!((found(&records), records[0].locked_by), (vec![claimed.id], Some(claimed.lease.worker)));
    assert_eq!(h.store().count_dead(&all()).await.expect("counted"), 1);
    assert_eq!(h.store().replay(&replay_all()).await.expect("replayed"), [claimed.id]);
    let row = h.row(claimed.id).await;
    assert_eq!((row.status, row.locked_by, row.locked_until), (State::Pending, None, None));
}

pub async fn replay_works_in_portions_oldest_first(h: impl Harness) {
    let mut placed = Vec::new();
    for _ in 0..3 {
        placed.push(dead(&h, message().deliver_after(Duration::ZERO)).await);
        h.pass_time(SECOND).await;
    }
    let two = Change { limit: 2, ..replay_all() };
    assert_eq!(h.store().replay(&two).await.expect("replayed"), placed[..2]);
    assert_eq!(h.store().replay(&two).await.expect("replayed"), placed[2..]);
}

/// Dead, replayed, claimed with the header, dead again, replayed again: the id stays, the attempts begin anew.
pub async fn t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed(h: impl Harness) {
    let first = h.put_and_claim(message().header("x-kind", "order").key("k").dedupe_key("d")).await;
    assert_eq!(first.headers.get(REPLAYED), None);
    give_up(&*h.store(), first.lease).await;
    for times in ["1", "2"] {
        assert_eq!(h.store().replay(&replay_all()).await.expect("replayed"), [first.id]);
        let again = h.claim_one(Uuid::new_v4()).await;
        assert_eq!((again.id, again.attempts), (first.id, 1));
        assert_eq!(again.headers.get(REPLAYED).map(String::as_str), Some(times));
        assert_eq!(again.headers.get("x-kind").map(String::as_str), Some("order"), "its own headers stay");
        let same = |a: &ClaimedMessage, b: &ClaimedMessage| {
            (&a.payload, &a.key, &a.dedupe_key, a.created_at_micros)
                == (&b.payload, &b.key, &b.dedupe_key, b.created_at_micros)
        };
        assert!(same(&first, &again), "{first:?} {again:?}");
        fail(&*h.store(), again.lease).await;
        let second = h.claim_one(Uuid::new_v4()).await;
        assert_eq!((second.attempts, second.headers.get(REPLAYED).map(String::as_str)), (2, Some(times)));
        give_up(&*h.store(), second.lease).await;
    }
}

pub async fn each_filter_alone_finds_its_message(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let by_id = died_of(&h, message_in("a", "t"), "first").await;
    let by_topic = died_of(&h, message_in("a", "u"), "second").await;
    let by_namespace = died_of(&h, message_in("b", "t"), "third").await;
    let by_tenant = died_of(&h, message_in("a", "t").tenant(tenant), "fourth").await;
    let by_key = died_of(&h, message_in("a", "t").key("K"), "fifth").await;
    let by_error = died_of(&h, message_in("a", "t"), "Connection REFUSED by peer").await;
    h.pass_time(HOUR).await;
    let latest = died_of(&h, message_in("a", "t"), "seventh").await;
    let died_at = h.row(latest).await.updated_at;
    let everything = [by_id, by_topic, by_namespace, by_tenant, by_key, by_error, latest];
    for (filter, expected) in [
        (Filter { ids: Some(vec![by_id, by_id, Uuid::new_v4()]), ..all() }, vec![by_id]),
        (Filter { topic: Some("u".into()), ..all() }, vec![by_topic]),
        (Filter { scope: Scope::namespace("b"), ..all() }, vec![by_namespace]),
        (of_tenant(tenant), vec![by_tenant]),
        (Filter { key: Some("K".into()), ..all() }, vec![by_key]),
        (Filter { key: Some("k".into()), ..all() }, vec![]),
        (Filter { error: Some("connection refused".into()), ..all() }, vec![by_error]),
        (Filter { error: Some("NECTION REF".into()), ..all() }, vec![by_error]),
        (Filter { since_micros: Some(died_at), ..all() }, vec![latest]),
        (Filter { since_micros: Some(died_at + 1), ..all() }, vec![]),
        (Filter { until_micros: Some(died_at), ..all() }, everything[..6].to_vec()),
        (Filter { until_micros: Some(died_at + 1), ..all() }, everything.to_vec()),
        (Filter { since_micros: Some(i64::MIN), until_micros: Some(i64::MAX), ..all() }, everything.to_vec()),
        (Filter { since_micros: Some(i64::MAX), ..all() }, vec![]),
        (Filter { until_micros: Some(i64::MIN), ..all() }, vec![]),
        (Filter { scope: Scope { namespaces: Some(Vec::new()), tenant: None }, ..all() }, vec![]),
        (Filter { ids: Some(Vec::new()), ..all() }, vec![]),
        (all(), everything.to_vec()),
    ] {
        assert_eq!(set(list(&*h.store(), &filter).await), set(expected.clone()), "{filter:?}");
        assert_eq!(h.store().count_dead(&filter).await.expect("counted"), expected.len() as u64, "{filter:?}");
    }
}

pub async fn filters_together_find_what_all_of_them_allow(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let good = || message_in("a", "t").tenant(tenant).key("k");
    let wanted = died_of(&h, good(), "broker down").await;
    let others = [
        died_of(&h, message_in("b", "t").tenant(tenant).key("k"), "broker down").await,
        died_of(&h, message_in("a", "u").tenant(tenant).key("k"), "broker down").await,
        died_of(&h, message_in("a", "t").key("k"), "broker down").await,
        died_of(&h, message_in("a", "t").tenant(tenant), "broker down").await,
        died_of(&h, good(), "no such topic").await,
        died_of(&h, good(), "broker down").await,
    ];
    let died_at = h.row(wanted).await.updated_at;
    let without_ids = Filter {
        scope: Scope { namespaces: Some(vec!["none".into(), "a".into()]), tenant: Some(tenant) },
        topic: Some("t".into()),
        key: Some("k".into()),
        ids: None,
        since_micros: Some(died_at),
        until_micros: Some(i64::MAX),
        error: Some("DOWN".into()),
    };
    let but_the_last = others[..5].iter().copied().chain([wanted]).collect();
    let with_ids = Filter { ids: Some(but_the_last), ..without_ids.clone() };
    assert_eq!(set(list(&*h.store(), &without_ids).await), set([wanted, others[5]]));
    assert_eq!(list(&*h.store(), &with_ids).await, [wanted]);
    assert_eq!(h.store().count_dead(&with_ids).await.expect("counted"), 1);
    assert_eq!(h.store().replay(&change(with_ids.clone())).await.expect("replayed"), [wanted]);
    assert_eq!(h.store().discard(&change(without_ids)).await.expect("discarded"), [others[5]]);
    assert_eq!(h.store().count_dead(&all()).await.expect("counted"), 5, "the others are as they were");
}

pub async fn signs_in_a_part_of_an_error_mean_themselves(h: impl Harness) {
    let percent = died_of(&h, message(), "disk at 100% of its size").await;
    let underscore = died_of(&h, message(), "no such column: order_id").await;
    let backslash = died_of(&h, message(), "cannot open C:\\temp\\x").await;
    let other = died_of(&h, message(), "größe: it's \"no\" good").await;
    for (part, expected) in [
        ("0%", vec![percent]),
        ("1%size", vec![]),
        ("_", vec![underscore]),
        ("order_ID", vec![underscore]),
        ("orderXid", vec![]),
        ("\\", vec![backslash]),
        ("\\TEMP", vec![backslash]),
        ("\\%", vec![]),
        ("größe", vec![other]),
        ("it's \"NO\"", vec![other]),
        ("", vec![percent, underscore, backslash, other]),
    ] {
        let filter = Filter { error: Some(part.into()), ..all() };
        assert_eq!(set(list(&*h.store(), &filter).await), set(expected), "{part:?}");
    }
}

pub async fn pages_of_messages_that_died_at_the_same_time_leave_none_out(h: impl Harness) {
    let early = dead(&h, message()).await;
    h.pass_time(HOUR).await;
    let together = died_together(&h, 23).await;
    let mut expected = vec![early];
    expected.extend(&together);
    h.pass_time(HOUR).await;
    expected.push(dead(&h, message()).await);
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    // Twice as many pages as there are, so that a list that does not go on ends the test.
    for _ in 0..10 {
        let page = h.store().dead(&all(), after, 5).await.expect("listed");
        let Some(last) = page.last() else { break };
        after = Some(last.position());
        seen.extend(found(&page));
        pages += 1;
    }
    assert_eq!((seen, pages), (expected.clone(), 5));
    let named = Filter { ids: Some(expected.clone()), ..all() };
    let first = h.store().dead(&named, None, 7).await.expect("listed");
    let rest = h.store().dead(&named, Some(first[6].position()), 100).await.expect("listed");
    assert_eq!([found(&first), found(&rest)].concat(), expected, "the same if they are named");
}

pub async fn a_list_goes_on_after_a_message_that_is_gone(h: impl Harness) {
    let together = died_together(&h, 4).await;
    let first = h.store().dead(&all(), None, 2).await.expect("listed");
    let gone = Filter { ids: Some(found(&first)), ..all() };
    assert_eq!(h.store().discard(&change(gone)).await.expect("discarded").len(), 2);
    let rest = h.store().dead(&all(), Some(first[1].position()), 10).await.expect("listed");
    assert_eq!(found(&rest), together[2..]);
    for micros in [i64::MIN, i64::MAX] {
        let nowhere = Position { updated_at_micros: micros, id: Uuid::nil() };
        let page = h.store().dead(&all(), Some(nowhere), 10).await.expect("listed");
        assert_eq!(page.len(), if micros < 0 { 2 } else { 0 });
    }
}

pub async fn s21_no_call_lists_or_changes_more_than_the_largest_change(h: impl Harness) {
    let largest = LARGEST_CHANGE as usize;
    died_together(&h, largest).await;
    dead(&h, message()).await;
    let everything = Change { limit: u32::MAX, ..replay_all() };
    let store = h.store();
    assert_eq!(store.count_dead(&all()).await.expect("counted"), 1_001, "a count is not cut");
    assert_eq!(store.dead(&all(), None, u32::MAX).await.expect("listed").len(), largest);
    assert_eq!(store.dead(&all(), None, 0).await.expect("listed").len(), 0);
    let nothing = Change { limit: 0, ..replay_all() };
    assert_eq!(store.replay(&nothing).await.expect("replayed"), NONE);
    assert_eq!(store.discard(&nothing).await.expect("discarded"), NONE);
    assert_eq!(store.replay(&everything).await.expect("replayed").len(), largest);
    let entry = last_entry(&*store).await;
    assert_eq!((entry.messages, entry.ids.len(), asked(&entry)), (1_000, largest, json!({"limit": 1_000})));
    assert_eq!(store.discard(&everything).await.expect("discarded").len(), 1);
    assert_eq!(store.audit(0).await.expect("read").len(), 0);
}

pub async fn discard_deletes_dead_messages_and_frees_their_dedupe_keys(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let kept = dead(&h, message_in("a", "t")).await;
    let waiting = h.put(message_in("a", "u").deliver_after(HOUR)).await;
    let gone = dead(&h, message_in("a", "u").dedupe_key("k")).await;
    let of_a_tenant = dead(&h, message_in("b", "t").tenant(tenant)).await;
    let topic = change(Filter { topic: Some("u".into()), ..all() });
    assert_eq!(h.store().discard(&topic).await.expect("discarded"), [gone]);
    assert_eq!(h.store().discard(&change(of_tenant(tenant))).await.expect("discarded"), [of_a_tenant]);
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), [kept, waiting]);
    assert!(h.store().message(gone).await.expect("looked").is_none());
    h.put(message_in("a", "u").dedupe_key("k")).await;
}

pub async fn s24_what_changed_messages_is_in_the_audit_table_newest_first(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let before = h.now_micros().await;
    let placed = [dead(&h, message()).await, dead(&h, message().tenant(tenant)).await, dead(&h, message()).await];
    let store = h.store();
    assert_eq!(store.audit(10).await.expect("read"), []);
    let named = Filter { ids: Some(vec![placed[0], Uuid::nil()]), error: Some("REFUSED".into()), ..all() };
    let replay = Change { who: "ann@example.org".into(), filter: named, limit: 7 };
    assert_eq!(store.replay(&replay).await.expect("replayed"), [placed[0]]);
    let discard = Change { who: "Bärbel 😀".into(), filter: of_tenant(tenant), limit: 5 };
    assert_eq!(store.discard(&discard).await.expect("discarded"), [placed[1]]);
    let purge = Purge { scope: Scope::namespace("shop"), ..purge(Finished::Dead, Duration::ZERO) };
    assert_eq!(store.purge_as("cron", &purge).await.expect("purged"), 1);
    let entries = store.audit(10).await.expect("read");
    let seen: Vec<_> = entries.iter().map(|entry| (&*entry.who, &*entry.action, entry.messages, &*entry.ids)).collect();
    let expected: [(&str, &str, u64, &[Uuid]); 3] = [
        ("cron", "purge", 1, &[]),
        ("Bärbel 😀", "discard", 1, &placed[1..2]),
        ("ann@example.org", "replay", 1, &placed[..1]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        asked(&entries[0]),
        json!({"namespaces": ["shop"], "finished": "dead", "older_than_seconds": 0.0, "limit": 100})
    );
    assert_eq!(asked(&entries[1]), json!({"tenant": tenant, "limit": 5}));
    assert_eq!(asked(&entries[2]), json!({"ids": [placed[0], Uuid::nil()], "error": "REFUSED", "limit": 7}));
    let now = h.now_micros().await;
    assert!(entries.iter().all(|entry| (before..=now).contains(&entry.at_micros)), "{entries:?}");
    assert_eq!(store.audit(2).await.expect("read"), entries[..2]);
    let page = async |before, limit| store.audit_before(before, limit).await.expect("read");
    assert_eq!(page(None, 1).await, entries[..1]);
    assert_eq!(page(Some(entries[0].seq), 1).await, entries[1..2]);
    assert_eq!(page(Some(entries[0].seq), 10).await, entries[1..]);
    assert_eq!(page(Some(entries[2].seq), 10).await, []);
    assert_eq!(page(Some(i64::MAX), 10).await, entries);
    assert_eq!(page(Some(i64::MIN), 10).await, []);
    assert_eq!(store.replay(&replay).await.expect("replayed"), NONE);
    assert_eq!(store.discard(&discard).await.expect("discarded"), NONE);
    assert_eq!(store.purge_as("cron", &purge).await.expect("purged"), 0);
    assert_eq!(store.audit(10).await.expect("read"), entries, "what changed nothing is not noted");
}

pub async fn s24_who_asks_must_be_said(h: impl Harness) {
    let id = dead(&h, message()).await;
    for who in ["", " ", "a\nb", "a\0b", &"x".repeat(201)] {
        let change = Change { who: who.into(), ..replay_all() };
        for refused in [h.store().replay(&change).await.map(drop), h.store().discard(&change).await.map(drop)] {
            assert_eq!(refused.expect_err("no good name").kind(), StoreErrorKind::Refused, "{who:?}");
        }
        let refused = h.store().purge_as(who, &purge(Finished::Dead, Duration::ZERO)).await;
        assert_eq!(refused.expect_err("no good name").kind(), StoreErrorKind::Refused, "{who:?}");
    }
    assert_eq!((h.row(id).await.status, lines(&*h.store()).await), (State::Dead, 0));
}

pub async fn t42_purge_by_an_operator_is_a_purge(h: impl Harness) {
    let (old, old_dead) = (delivered(&h, message_in("a", "t")).await, dead(&h, message_in("a", "t")).await);
    delivered(&h, message_in("b", "t")).await;
    h.pass_time(HOUR).await;
    let young = delivered(&h, message_in("a", "t")).await;
    let purge = |finished, limit| Purge { scope: Scope::namespace("a"), limit, ..purge(finished, HOUR / 2) };
    let store = h.store();
    assert_eq!(store.count_purge(&purge(Finished::Delivered, 0)).await.expect("counted"), 1, "the limit apart");
    assert_eq!(store.purge_as("ann", &purge(Finished::Delivered, 0)).await.expect("purged"), 0);
    assert_eq!(store.purge_as("ann", &purge(Finished::Delivered, 10)).await.expect("purged"), 1);
    assert!(h.find(old).await.is_none() && h.find(young).await.is_some() && h.find(old_dead).await.is_some());
    assert_eq!(store.count_purge(&purge(Finished::Delivered, 10)).await.expect("counted"), 0);
    assert_eq!(store.count_purge(&purge(Finished::Dead, 10)).await.expect("counted"), 1);
    assert_eq!(store.purge_as("ann", &purge(Finished::Dead, 10)).await.expect("purged"), 1);
    assert_eq!((h.rows().await.len(), lines(&*store).await), (2, 2));
}

fn tally(tallies: &[Tally], topic: &str, state: State) -> Tally {
    let found = tallies.iter().find(|tally| tally.topic == topic && tally.state == state);
    found.unwrap_or_else(|| panic!("no {topic} {state:?} in {tallies:?}")).clone()
}

fn numbers(tally: &Tally) -> (u64, u64, u64) {
    (tally.messages, tally.last_minute, tally.due)
}

pub async fn the_overview_counts_by_namespace_topic_and_state(h: impl Harness) {
    let claim = |namespace: &str| ClaimRequest { scope: Scope::namespace(namespace), ..request(Uuid::new_v4()) };
    delivered(&h, message_in("done", "acked")).await;
    dead(&h, message_in("shop", "failed")).await;
    dead(&h, message_in("shop", "failed")).await;
    h.put(message_in("shop", "placed")).await;
    h.put_all([message_in("late", "failed"), message_in("late", "tried")]).await;
    h.put_all([message_in("busy", "running"), message_in("busy", "running")]).await;
    assert_eq!(h.claim(&claim("busy")).await.len(), 2);
    h.pass_time(Duration::from_secs(120)).await;
    h.put_all([message_in("shop", "placed"), message_in("shop", "placed").deliver_after(HOUR)]).await;
    let late = h.claim(&claim("late")).await;
    let of = |topic: &str| late.iter().find(|message| message.topic == topic).expect("it was claimed").lease;
    give_up(&*h.store(), of("failed")).await;
    fail(&*h.store(), of("tried")).await;

    let tallies = h.store().overview(&Scope::all(), true).await.expect("counted");
    let order: Vec<_> = tallies.iter().map(|tally| (&*tally.namespace, &*tally.topic, tally.state)).collect();
    let expected = [
        ("busy", "running", State::Processing),
        ("done", "acked", State::Delivered),
        ("late", "failed", State::Dead),
        ("late", "tried", State::Pending),
        ("shop", "failed", State::Dead),
        ("shop", "placed", State::Pending),
    ];
    assert_eq!(order, expected);
    let two_minutes = |tally: &Tally| (120..180).contains(&tally.oldest.as_secs());
    let pending = tally(&tallies, "placed", State::Pending);
    assert_eq!(numbers(&pending), (3, 2, 2));
    assert!(two_minutes(&pending), "the oldest due one counts: {pending:?}");
    for (topic, state, count) in
        [("running", State::Processing, 2), ("acked", State::Delivered, 1), ("failed", State::Dead, 1)]
    {
        let tally = tally(&tallies, topic, state);
        if topic == "failed" {
            assert_eq!(numbers(&tally), (count, 1, 0), "it died in the last minute");
            assert!(tally.oldest < Duration::from_secs(60), "{tally:?}");
        } else {
            assert_eq!(numbers(&tally), (count, 0, 0));
            assert!(two_minutes(&tally), "{tally:?}");
        }
    }
    let tried = tally(&tallies, "tried", State::Pending);
    assert_eq!(numbers(&tried), (1, 0, 1), "it was enqueued two minutes ago, whatever happened since");
    assert!(tried.oldest < Duration::from_secs(60), "{tried:?}");
    assert_eq!(numbers(&tallies[4]), (2, 0, 0));

    let without = h.store().overview(&Scope::all(), false).await.expect("counted");
    assert_eq!(without.len(), 5);
    assert!(without.iter().all(|tally| tally.state != State::Delivered));
}

pub async fn s08_the_overview_keeps_to_its_scope(h: impl Harness) {
    let tenant = Uuid::new_v4();
    assert_eq!(h.store().overview(&Scope::all(), true).await.expect("counted"), []);
    h.put_all([message_in("a", "t"), message_in("a", "t").tenant(tenant), message_in("b", "t")]).await;
    let count = |scope: Scope| {
        let store = h.store();
        async move {
            let tallies = store.overview(&scope, true).await.expect("counted");
            tallies.iter().map(|tally| (tally.namespace.clone(), tally.messages)).collect::<BTreeMap<_, _>>()
        }
    };
    let numbers = |list: &[(&str, u64)]| list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(count(Scope::all()).await, numbers(&[("a", 2), ("b", 1)]));
    assert_eq!(count(Scope::namespace("b")).await, numbers(&[("b", 1)]));
    assert_eq!(count(Scope { namespaces: None, tenant: Some(tenant) }).await, numbers(&[("a", 1)]));
    assert_eq!(count(Scope { namespaces: Some(Vec::new()), tenant: None }).await, numbers(&[]));
}

pub async fn a_message_is_shown_whole_in_every_state(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let sent = message_in("a", "t")
        .key("k")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/d"))
        .header("x-kind", "order")
        .max_attempts(3);
    let id = h.put(sent).await;
    let look = || async { h.store().message(id).await.expect("looked").expect("it is there") };
    let pending = look().await;
    assert_eq!((&*pending.namespace, &*pending.topic, pending.key.as_deref()), ("a", "t", Some("k")));
    assert_eq!((pending.tenant_id, pending.dedupe_key), (Some(tenant), Some(format!("{tenant}/d"))));
    assert_eq!((pending.state, pending.attempts, pending.max_attempts), (State::Pending, 0, Some(3)));
    assert_eq!(pending.headers.get("x-kind").map(String::as_str), Some("order"));
    let payload = pending.payload.expect("one message has its payload");
    assert_eq!(payload.to_value().expect("it is JSON"), json!({"order": 7}));
    let claimed = h.claim_one(Uuid::new_v4()).await;
    let processing = look().await;
    assert_eq!((processing.state, processing.attempts), (State::Processing, 1));
    assert_eq!(processing.locked_by, Some(claimed.lease.worker));
    give_up(&*h.store(), claimed.lease).await;
    let (dead, row) = (look().await, h.row(id).await);
    assert_eq!((dead.state, dead.last_error.as_deref()), (State::Dead, Some("refused for good")));
    assert_eq!((dead.created_at_micros, dead.updated_at_micros), (row.created_at, row.updated_at));
    assert_eq!((dead.next_attempt_at_micros, dead.locked_until_micros), (row.next_attempt_at, None));
    let listed = h.store().dead(&all(), None, 1).await.expect("listed").remove(0);
    assert_eq!(listed, Record { payload: None, ..dead }, "a list has no payloads");
    let acked = delivered(&h, Message::bytes("a", "t", "text/plain", vec![0xff, 0])).await;
    let acked = h.store().message(acked).await.expect("looked").expect("it is there");
    assert_eq!((acked.state, acked.payload), (State::Delivered, Some(Payload::Bytes(vec![0xff, 0]))));
    assert!(acked.delivered_at_micros.is_some());
}

pub async fn what_is_not_there_is_an_empty_answer(h: impl Harness) {
    let (store, unknown) = (h.store(), Filter { ids: Some(vec![Uuid::new_v4()]), ..all() });
    assert!(store.message(Uuid::new_v4()).await.expect("looked").is_none());
    for filter in [all(), unknown] {
        assert_eq!(list(&*store, &filter).await, NONE);
        assert_eq!(store.count_dead(&filter).await.expect("counted"), 0);
        assert_eq!(store.replay(&change(filter.clone())).await.expect("replayed"), NONE);
        assert_eq!(store.discard(&change(filter)).await.expect("discarded"), NONE);
    }
    for finished in [Finished::Delivered, Finished::Dead] {
        assert_eq!(store.count_purge(&purge(finished, Duration::ZERO)).await.expect("counted"), 0);
        assert_eq!(store.purge_as("ann", &purge(finished, Duration::ZERO)).await.expect("purged"), 0);
    }
    assert_eq!(store.audit(10).await.expect("read"), []);
}

pub async fn s08_a_filter_of_a_tenant_never_reaches_another_s_messages(h: impl Harness) {
    let (mine, other) = (Uuid::new_v4(), Uuid::new_v4());
    let theirs = dead(&h, message().tenant(other)).await;
    let nobody_s = dead(&h, message()).await;
    let filter = Filter { ids: Some(vec![theirs, nobody_s]), ..of_tenant(mine) };
    for filter in [of_tenant(mine), filter] {
        assert_eq!(list(&*h.store(), &filter).await, NONE);
        assert_eq!(h.store().count_dead(&filter).await.expect("counted"), 0);
        assert_eq!(h.store().replay(&change(filter.clone())).await.expect("replayed"), NONE);
        assert_eq!(h.store().discard(&change(filter)).await.expect("discarded"), NONE);
    }
    assert_eq!(h.store().count_dead(&of_tenant(other)).await.expect("counted"), 1);
}

pub async fn s01_hostile_texts_in_a_filter_find_nothing_and_change_nothing(h: impl Harness) {
    dead(&h, message().key("k")).await;
    delivered(&h, message()).await;
    let before = h.rows().await;
    for text in HOSTILE.map(str::to_owned) {
        for filter in [
            Filter { scope: Scope::namespace(text.clone()), ..all() },
            Filter { topic: Some(text.clone()), ..all() },
            Filter { key: Some(text.clone()), ..all() },
            Filter { error: Some(text.clone()), ..all() },
        ] {
            let store = h.store();
            assert_eq!(list(&*store, &filter).await, NONE, "{filter:?}");
            assert_eq!(store.count_dead(&filter).await.expect("counted"), 0, "{filter:?}");
            assert_eq!(store.replay(&change(filter.clone())).await.expect("replayed"), NONE, "{filter:?}");
            assert_eq!(store.discard(&change(filter.clone())).await.expect("discarded"), NONE, "{filter:?}");
            assert_eq!(store.overview(&Scope::namespace(text.clone()), true).await.expect("counted"), []);
            let purge = Purge { scope: Scope::namespace(text.clone()), ..purge(Finished::Delivered, Duration::ZERO) };
            assert_eq!(store.count_purge(&purge).await.expect("counted"), 0);
            assert_eq!(store.purge_as(&text, &purge).await.expect("purged"), 0);
        }
    }
    assert_eq!((h.rows().await, lines(&*h.store()).await), (before, 0));
}

pub async fn s01_hostile_texts_are_found_where_they_are_and_noted_as_they_are(h: impl Harness) {
    for text in HOSTILE {
        let id = died_of(&h, message().key(text), &format!("said: {text} (twice)")).await;
        dead(&h, message()).await;
        let filter = Filter { key: Some(text.into()), error: Some(text.into()), ..all() };
        assert_eq!(list(&*h.store(), &filter).await, [id], "{text}");
        let discard = Change { who: text.into(), filter, limit: 10 };
        assert_eq!(h.store().discard(&discard).await.expect("discarded"), [id], "{text}");
        let entry = last_entry(&*h.store()).await;
        assert_eq!((&*entry.who, &*entry.ids), (text, &[id][..]));
        assert_eq!(asked(&entry), json!({"key": text, "error": text, "limit": 10}));
    }
    assert_eq!(h.store().count_dead(&all()).await.expect("counted"), HOSTILE.len() as u64);
}

pub async fn s01_a_filter_with_the_nul_character_is_refused(h: impl Harness) {
    let nul = || Some("a\0b".to_owned());
    for filter in [
        Filter { topic: nul(), ..all() },
        Filter { key: nul(), ..all() },
        Filter { error: nul(), ..all() },
        Filter { scope: Scope::namespace("a\0b"), ..all() },
    ] {
        let store = h.store();
        for refused in [
            store.dead(&filter, None, 1).await.map(drop),
            store.count_dead(&filter).await.map(drop),
            store.replay(&change(filter.clone())).await.map(drop),
            store.discard(&change(filter.clone())).await.map(drop),
        ] {
            assert_eq!(refused.expect_err("no message has it").kind(), StoreErrorKind::Refused, "{filter:?}");
        }
    }
}

pub async fn operators_that_replay_at_the_same_time_replay_each_message_once(h: impl Harness) {
    let mut together = died_together(&h, 60).await;
    let mut operators = Vec::new();
    for number in 0..4 {
        let store = h.store();
        operators.push(tokio::spawn(async move {
            let change = Change { who: format!("operator {number}"), limit: 7, ..replay_all() };
            let mut mine = Vec::new();
            // Far more rounds than it takes, so that a broken store ends the test.
            for _ in 0..100 {
                if store.count_dead(&all()).await.expect("counted") == 0 {
                    break;
                }
                mine.extend(store.replay(&change).await.expect("replayed"));
            }
            mine
        }));
    }
    let mut replayed = Vec::new();
    for operator in operators {
        replayed.extend(operator.await.expect("no panic"));
    }
    replayed.sort_unstable();
    together.sort_unstable();
    assert_eq!(replayed, together);
    let claimed = h.claim_all(Uuid::new_v4()).await;
    assert_eq!(claimed.len(), 60);
    assert!(claimed.iter().all(|message| message.headers.get(REPLAYED).is_some_and(|times| times == "1")));
    let entries = h.store().audit(100).await.expect("read");
    assert_eq!(entries.iter().map(|entry| entry.messages).sum::<u64>(), 60);
    assert_eq!(set(entries.into_iter().flat_map(|entry| entry.ids)), set(together));
}
