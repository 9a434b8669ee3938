//! Order per key: what comes after a message of a key waits for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, LONGEST_RUN, Order, Scope};
use postrider::{ClaimedMessage, Message, Operator, Store};
use uuid::Uuid;

use super::harness::Harness;
use super::scene::*;

/// A claim of everything with order per key, by a worker of its own.
fn ordered() -> ClaimRequest {
    ClaimRequest { waits: Order::Key, ..request(Uuid::new_v4()) }
}

fn fair() -> ClaimRequest {
    ClaimRequest { order: ClaimOrder::Fair { after: None }, ..ordered() }
}

fn keyed(key: &str) -> Message {
    message().key(key)
}

pub async fn r59_a_head_in_backoff_holds_up_its_key_and_nobody_else(h: impl Harness) {
    let head = h.put(keyed("a")).await;
    let claimed = h.claim(&ordered()).await;
    let followers = h.put_all([keyed("a"), message_in("shop", "other.topic").key("a")]).await;
    let others = h.put_all([keyed("b"), message(), message_in("elsewhere", "t").key("a")]).await;
    let free = h.claim(&ordered()).await;
    assert_eq!(set(ids(&free)), set(others), "while the head is under way");
    for message in free {
        ack(&*h.store(), message.lease).await;
    }
    h.store().nack(&[nack(claimed[0].lease, HOUR)]).await.expect("the store nacks");
    assert_eq!(ids(&h.claim(&ordered()).await), NONE, "while it is in backoff");
    h.pass_time(HOUR + SECOND).await;
    assert_eq!(ids(&h.claim(&ClaimRequest { limit: 1, ..ordered() }).await), [head], "the head comes first");
    assert_eq!(ids(&h.claim(&ordered()).await).iter().filter(|id| followers.contains(id)).count(), 0);
}

pub async fn r59_the_run_of_a_key_is_claimed_at_once_and_in_order(h: impl Harness) {
    let keys = ["a", "b", "a", "a", "b", "a"];
    let placed = h.put_all(keys.map(keyed)).await;
    let claimed = h.claim(&ClaimRequest { limit: 5, ..ordered() }).await;
    assert_eq!(ids(&claimed), placed[..5], "the second of each key comes before the fourth of any");
    assert_eq!(ids(&h.claim(&ordered()).await), NONE, "the last one waits for the others");
}

pub async fn r59_the_run_of_a_key_is_bounded(h: impl Harness) {
    let many = (0..LONGEST_RUN as usize + 20).map(|_| keyed("hot")).collect();
    let placed: Vec<Uuid> = h.enqueue_many(many).await.expect("valid").iter().map(|answer| answer.id()).collect();
    let claimed = h.claim(&ClaimRequest { limit: 1_000, ..ordered() }).await;
    assert_eq!(ids(&claimed), placed[..LONGEST_RUN as usize]);
}

pub async fn r59_no_more_than_asked_for_come_after_the_first_of_their_keys(h: impl Harness) {
    let placed = h.put_all(["a", "a", "a", "b", "b", "b"].map(keyed)).await;
    let none = h.claim(&ClaimRequest { followers: 0, ..ordered() }).await;
    assert_eq!(ids(&none), [placed[0], placed[3]]);
    let given_back: Vec<_> = none.iter().map(|message| release(message.lease)).collect();
    h.store().release(&given_back).await.expect("the store releases");
    let three = h.claim(&ClaimRequest { followers: 3, ..ordered() }).await;
    assert_eq!(ids(&three), [placed[0], placed[1], placed[2], placed[3], placed[4]]);
}

pub async fn r59_a_run_ends_before_a_row_that_may_not_be_claimed(h: impl Harness) {
    let placed = h.put_all([keyed("a"), keyed("a"), keyed("a").deliver_after(HOUR), keyed("a")]).await;
    assert_eq!(ids(&h.claim(&ordered()).await), placed[..2]);
    h.expire().await;
    assert_eq!(ids(&h.claim(&ordered()).await), placed[..2], "expired, and the delayed one still waits");
}

pub async fn r59_a_claim_that_is_cut_short_keeps_the_first_of_a_key(h: impl Harness) {
    let placed = h.put_all(["a", "a", "a"].map(keyed)).await;
    // The head is due last.
    let head = h.claim(&ClaimRequest { limit: 1, ..ordered() }).await;
    h.pass_time(SECOND).await;
    fail(&*h.store(), head[0].lease).await;
    let head = h.claim(&ClaimRequest { max_bytes: 1, ..ordered() }).await;
    assert_eq!(ids(&head), placed[..1]);
    h.store().release(&[release(head[0].lease)]).await.expect("the store releases");
    assert_eq!(ids(&h.claim(&ClaimRequest { limit: 2, ..ordered() }).await), placed[..2]);
}

pub async fn r60_when_the_lease_of_a_run_is_over_it_is_claimed_from_its_head(h: impl Harness) {
    let placed = h.put_all(["a", "a", "a", "a"].map(keyed)).await;
    assert_eq!(h.claim(&ClaimRequest { limit: 3, ..ordered() }).await.len(), 3);
    h.expire().await;
    let again = h.claim(&ordered()).await;
    assert_eq!(ids(&again), placed, "expired ones and what comes after them");
    // The head lives on, and those behind it have lost their worker.
    h.pass_time(LEASE / 2).await;
    h.store().extend(&[again[0].lease], LEASE).await.expect("the store extends");
    h.pass_time(LEASE / 2 + MINUTE).await;
    assert_eq!(ids(&h.claim(&ordered()).await), NONE);
    assert_eq!(ids(&h.claim(&ClaimRequest { order: ClaimOrder::Suspects, ..ordered() }).await), NONE);
}

pub async fn r61_a_dead_head_is_skipped(h: impl Harness) {
    let placed = h.put_all(["a", "a", "a"].map(keyed)).await;
    let claimed = h.claim(&ClaimRequest { limit: 1, ..ordered() }).await;
    give_up(&*h.store(), claimed[0].lease).await;
    let claimed = h.claim(&ClaimRequest { limit: 1, ..ordered() }).await;
    assert_eq!(ids(&claimed), placed[1..2]);
    h.expire().await;
    assert_eq!(h.sweep(1).await, [placed[1]], "its attempts are spent");
    assert_eq!(ids(&h.claim(&ordered()).await), placed[2..]);
}

/// Those that wait have been due for longer, and stay where they are until it is buried.
pub async fn r61_a_head_over_a_lowered_limit_is_found_behind_thousands_of_followers(h: impl Harness) {
    let head = h.put(keyed("a")).await;
    let claimed = h.claim(&ordered()).await;
    h.enqueue_many((0..LARGEST_CLAIM + 200).map(|_| keyed("a")).collect()).await.expect("valid");
    h.pass_time(SECOND).await;
    h.store().nack(&[nack(claimed[0].lease, MINUTE)]).await.expect("the store nacks");
    assert_eq!(h.sweep(1).await, NONE, "it is not due yet");
    h.pass_time(MINUTE * 2).await;
    let lowered = ClaimRequest { max_attempts: 1, ..ordered() };
    assert_eq!(ids(&h.claim(&lowered).await), NONE);
    assert_eq!(h.sweep(2).await, NONE, "it has an attempt left");
    assert_eq!(h.sweep(1).await, [head]);
    assert!(!h.claim(&lowered).await.is_empty(), "the others go on");
}

pub async fn r61_a_replayed_message_goes_out_late_and_before_what_still_waits(h: impl Harness) {
    let placed = h.put_all(["a", "a"].map(keyed)).await;
    let claimed = h.claim(&ordered()).await;
    give_up(&*h.store(), claimed[0].lease).await;
    ack(&*h.store(), claimed[1].lease).await;
    let waiting = h.put(keyed("a")).await;
    h.store().replay(&replay_all()).await.expect("the store replays");
    assert_eq!(ids(&h.claim(&ordered()).await), [placed[0], waiting]);
}

pub async fn r59_followers_that_are_released_wait_for_their_head(h: impl Harness) {
    let placed = h.put_all(["a", "a", "a"].map(keyed)).await;
    let claimed = h.claim(&ordered()).await;
    let followers: Vec<_> = claimed[1..].iter().map(|message| release(message.lease)).collect();
    h.store().release(&followers).await.expect("the store releases");
    assert_eq!(ids(&h.claim(&ordered()).await), NONE);
    h.store().release(&[release(claimed[0].lease)]).await.expect("the store releases");
    assert_eq!(ids(&h.claim(&ordered()).await), placed);
    assert!(h.rows().await.iter().all(|row| row.attempts == 1), "none of this cost an attempt");
}

pub async fn r59_a_fair_claim_takes_the_first_of_a_key(h: impl Harness) {
    let placed = h
        .put_all([
            message_in("shop", "a").key("k"),
            message_in("shop", "b").key("k"),
            message_in("shop", "b"),
            message_in("shop", "b").key("l"),
            message_in("shop", "a").key("k"),
        ])
        .await;
    let claimed = h.claim(&fair()).await;
    assert_eq!(ids(&claimed), [placed[0], placed[2], placed[3]]);
    assert_eq!(ids(&h.claim(&fair()).await), NONE);
    ack(&*h.store(), claimed[0].lease).await;
    assert_eq!(ids(&h.claim(&fair()).await), [placed[1]]);
}

pub async fn r59_suspects_are_claimed_from_the_head_of_their_key(h: impl Harness) {
    let placed = h.put_all(["a", "a", "b"].map(keyed)).await;
    for _ in 0..2 {
        assert_eq!(ids(&h.claim(&ordered()).await), placed);
        h.expire().await;
    }
    assert_eq!(ids(&h.claim(&ordered()).await), NONE, "all of them are suspect now");
    let suspects = ClaimRequest { order: ClaimOrder::Suspects, ..ordered() };
    let claimed = h.claim(&suspects).await;
    assert_eq!(ids(&claimed), [placed[0], placed[2]]);
    ack(&*h.store(), claimed[0].lease).await;
    assert_eq!(ids(&h.claim(&suspects).await), [placed[1]]);
}

pub async fn r59_s09_the_same_key_of_two_tenants_is_two_lines(h: impl Harness) {
    let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
    // What one tenant delays holds up itself, and neither another tenant nor what has none.
    h.put(keyed("a").tenant(theirs).deliver_after(HOUR)).await;
    let line = [keyed("a").tenant(ours), keyed("a").tenant(theirs), keyed("a").tenant(ours), keyed("a"), keyed("a")];
    let placed = h.put_all(line).await;
    let of_ours = Scope { namespaces: None, tenant: Some(ours) };
    let asked = [
        (ordered(), vec![placed[0], placed[2], placed[3], placed[4]]),
        (ClaimRequest { followers: 0, ..ordered() }, vec![placed[0], placed[3]]),
        (fair(), vec![placed[0], placed[3]]),
        (ClaimRequest { scope: of_ours.clone(), ..ordered() }, vec![placed[0], placed[2]]),
        (ClaimRequest { scope: of_ours, ..fair() }, vec![placed[0]]),
    ];
    for (request, expected) in asked {
        let claimed = h.claim(&request).await;
        assert_eq!(ids(&claimed), expected, "{request:?}");
        let given_back: Vec<_> = claimed.iter().rev().map(|message| release(message.lease)).collect();
        h.store().release(&given_back).await.expect("the store releases");
    }
}

pub async fn r59_s09_a_busy_key_of_one_tenant_does_not_hide_the_same_key_of_another(h: impl Harness) {
    let (busy, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    h.put(keyed("a").tenant(busy)).await;
    let head = h.claim(&ordered()).await;
    h.store().nack(&[nack(head[0].lease, HOUR)]).await.expect("the store nacks");
    h.enqueue_many((0..1_500).map(|_| keyed("a").tenant(busy)).collect()).await.expect("valid");
    h.pass_time(SECOND).await;
    let theirs = h.put(keyed("a").tenant(other)).await;
    assert_eq!(ids(&h.claim(&ClaimRequest { limit: 10, ..ordered() }).await), [theirs]);
}

pub async fn r59_thousands_of_followers_starve_nobody(h: impl Harness) {
    h.put(keyed("stuck")).await;
    let head = h.claim(&ordered()).await;
    h.store().nack(&[nack(head[0].lease, HOUR)]).await.expect("the store nacks");
    h.enqueue_many((0..3_000).map(|_| keyed("stuck")).collect()).await.expect("valid");
    h.pass_time(SECOND).await;
    let others = h.put_all(["b", "c"].map(keyed)).await;
    assert_eq!(ids(&h.claim(&ClaimRequest { limit: 10, ..ordered() }).await), others);
    assert_eq!(ids(&h.claim(&fair()).await), NONE);
}

pub async fn r59_thousands_that_wait_for_one_under_way_starve_nobody(h: impl Harness) {
    h.enqueue_many((0..3_000).map(|_| keyed("busy")).collect()).await.expect("valid");
    let few = ClaimRequest { limit: 10, followers: 0, ..ordered() };
    assert_eq!(h.claim(&few).await.len(), 1, "the head is under way");
    let others = h.put_all([keyed("b"), message(), keyed("c")]).await;
    h.pass_time(SECOND).await;
    assert_eq!(ids(&h.claim(&ClaimRequest { thorough: true, ..few }).await), others);
}

pub async fn r59_s08_one_tenant_s_busy_keys_are_not_in_another_s_way(h: impl Harness) {
    let [busy, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    h.enqueue_many((0..100).map(|_| keyed("busy").tenant(busy)).collect()).await.expect("valid");
    let few = ClaimRequest { limit: 10, followers: 0, ..ordered() };
    assert_eq!(h.claim(&few).await.len(), 1, "the head is under way");
    let theirs = h.put(keyed("busy").tenant(other)).await;
    let scope = Scope { tenant: Some(other), ..Scope::all() };
    assert_eq!(ids(&h.claim(&ClaimRequest { scope, ..few }).await), [theirs]);
}

pub async fn r59_what_waits_for_its_key_is_not_coming_by_itself(h: impl Harness) {
    h.put(keyed("a")).await;
    let coming = async || h.store().next_coming(&Scope::all(), MINUTE).await.expect("the store looks");
    assert_eq!(coming().await, Some(Duration::ZERO), "it came just now");
    let head = h.claim(&ordered()).await;
    h.put(keyed("a")).await;
    h.pass_time(MINUTE * 5).await;
    let near =
        |found: Option<Duration>, wanted: Duration| found.is_some_and(|it| it <= wanted && it + MINUTE >= wanted);
    let left = coming().await;
    assert!(near(left, LEASE - MINUTE * 5), "the lease of the head ends, {left:?}");
    h.store().nack(&[nack(head[0].lease, HOUR)]).await.expect("the store nacks");
    let left = coming().await;
    assert!(near(left, HOUR), "the head comes again, {left:?}");
}

/// Which keys are in somebody's hand, and the last number that was delivered of each.
#[derive(Default)]
struct Hands(Mutex<HashMap<String, (bool, u64)>>);

impl Hands {
    fn with<T>(&self, key: &str, change: impl FnOnce(&mut (bool, u64)) -> T) -> T {
        change(self.0.lock().expect("no worker panics").entry(key.to_owned()).or_default())
    }

    fn take(&self, key: &str) {
        self.with(key, |hand| assert!(!std::mem::replace(&mut hand.0, true), "{key} is in two hands"));
    }

    /// Whether the message is delivered; every third fails once.
    fn deliver(&self, key: &str, message: &ClaimedMessage) -> bool {
        let number = message.payload.to_value().expect("JSON")["number"].as_u64().expect("a number");
        let delivered = !number.is_multiple_of(3) || message.attempts > 1;
        self.with(key, |hand| {
            assert_eq!(number, hand.1 + 1, "{key} goes in order");
            hand.1 += u64::from(delivered);
        });
        delivered
    }

    fn delivered(&self) -> u64 {
        self.0.lock().expect("no worker panics").values().map(|(_, last)| last).sum()
    }
}

/// Claims and settles until everything is delivered.
async fn deliver_in_order(store: Arc<dyn Operator>, hands: Arc<Hands>, all: u64) {
    let worker = Uuid::new_v4();
    while hands.delivered() < all {
        let request = ClaimRequest { limit: 12, waits: Order::Key, ..request(worker) };
        let claimed = store.claim(&request).await.expect("the store claims").messages;
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut runs: BTreeMap<String, Vec<ClaimedMessage>> = BTreeMap::new();
        for message in claimed {
            runs.entry(message.key.clone().expect("all have one")).or_default().push(message);
        }
        runs.keys().for_each(|key| hands.take(key));
        for (key, run) in &runs {
            settle_run(&*store, &hands, key, run).await;
        }
    }
}

/// The head that fails, or the last of the run, is settled last: that frees the key.
async fn settle_run(store: &dyn Store, hands: &Hands, key: &str, run: &[ClaimedMessage]) {
    let delivered = run.iter().take_while(|message| hands.deliver(key, message)).count();
    let failed = run.get(delivered);
    let acks = if failed.is_some() { delivered } else { delivered - 1 };
    for message in &run[..acks] {
        ack(store, message.lease).await;
    }
    let followers: Vec<_> = run.iter().skip(delivered + 1).map(|message| release(message.lease)).collect();
    store.release(&followers).await.expect("the store releases");
    hands.with(key, |hand| hand.0 = false);
    match failed {
        Some(message) => fail(store, message.lease).await,
        None => ack(store, run[acks].lease).await,
    }
}

pub async fn r60_claimers_at_the_same_time_never_split_a_key(h: impl Harness) {
    const KEYS: u64 = 6;
    const EACH: u64 = 40;
    let hands = Arc::new(Hands::default());
    let workers: Vec<_> =
        (0..4).map(|_| tokio::spawn(deliver_in_order(h.store(), hands.clone(), KEYS * EACH))).collect();
    // Messages of one key are written one after the other, while they are claimed.
    for number in 1..=EACH {
        for key in 0..KEYS {
            let message =
                Message::json("shop", "t", &serde_json::json!({ "number": number })).key(format!("key-{key}"));
            h.put(message).await;
        }
    }
    for worker in workers {
        let ended = tokio::time::timeout(Duration::from_secs(240), worker).await;
        ended.expect("all is delivered in time").expect("no worker panics");
    }
    assert_eq!(hands.delivered(), KEYS * EACH);
}
