//! Tables of other shapes on the databases that have leases and lock time-outs only.

use std::time::Duration;

use postrider::layout::{Ability, Column, Layout};
use postrider::store::{Bury, Delivered, Nack, Release, Settled};
use postrider::{Message, Names, State};
use testkit::conformance::{Harness, LEASE};
use uuid::Uuid;

use crate::harness::{Cannot, in_the_shop};

/// A table of another shape: how the suite reads its columns, in words that both databases understand.
pub trait Shape: 'static {
    /// The layout, made fit for the messages of the suite.
    fn layout() -> Layout;
    const TABLE: &str;
    /// Makes the table, where Postrider does not know it.
    const MADE: &str = "";
    /// The state in our words, the attempts, and the worker.
    const STATUS: &str = "status";
    const ATTEMPTS: &str = "attempts";
    const LOCKED_BY: &str = "locked_by";
    /// The column that says until when a row is locked, or since when.
    const LOCKED: &str = "locked_until";
    /// How long a lock counts that says since when it is, in microseconds, and while which condition holds.
    const LOCK_TIMEOUT: i64 = 0;
    const IS_LOCKED: &str = "locked_until is not null";
    const UPDATED: &str = "updated_at";
    const DELIVERED: &str = "null";
    /// Its columns with times.
    const TIMES: &[&str];
    /// The owner's word for a state.
    fn word(state: State) -> &'static str {
        state.as_str()
    }
    /// Gives a message what the table needs.
    fn fit(message: Message) -> Message {
        message
    }
    /// What the table cannot do, whatever the database.
    const CANNOT: Cannot;
}

const ORDER: (Ability, &[&str]) =
    (Ability::OrderByKey, &["r59_*", "r60_*", "r61_*", "s08_every_claim_keeps_to_its_tenant_also_with_order_by_key"]);

const FAIR: (Ability, &[&str]) =
    (Ability::FairShares, &["r24_a_fair_claim_*", "r24_fair_claims_*", "r24_lanes_*", "r24_no_lane_*"]);

const BYTES: (Ability, &[&str]) = (
    Ability::Bytes,
    &[
        "a_claim_always_takes_the_first_row_however_large",
        "r07_any_bytes_arrive_byte_for_byte_on_every_attempt",
        "r07_bytes_arrive_byte_for_byte_with_their_content_type",
    ],
);

const MAX_ATTEMPTS: (Ability, &[&str]) = (
    Ability::MaxAttempts,
    &[
        "c12_*",
        "r21_suspects_are_claimed_one_at_a_time_if_asked",
        "r21_the_last_attempt_is_counted_by_the_row_s_own_number",
        "s08_a_dispatcher_of_one_tenant_leaves_the_rows_of_others_as_they_are",
    ],
);

const NAMESPACES: (Ability, &[&str]) = (
    Ability::Namespaces,
    &[
        "a_claim_over_two_busy_namespaces_takes_from_both",
        "discard_deletes_dead_messages_and_frees_their_dedupe_keys",
        "each_filter_alone_finds_its_message",
        "next_due_is_the_time_of_the_next_delayed_row",
        "r21_suspects_keep_to_the_scope",
        "r24_the_row_due_for_longest_is_claimed_whatever_its_namespace",
        "s08_purge_keeps_to_its_scope",
        "s08_the_overview_keeps_to_its_scope",
        "s0_13_s0_14_s0_17_claim_batch_takes_its_own_namespace_up_to_its_size",
        "s0_17_a_claim_keeps_to_its_namespaces",
        "s0_35_a_dedupe_key_counts_within_its_namespace_and_topic",
        "stats_keep_to_their_scope",
        "t42_purge_by_an_operator_is_a_purge",
        "the_overview_counts_by_namespace_topic_and_state",
        "the_sweep_keeps_to_its_scope",
    ],
);

const TENANTS: (Ability, &[&str]) = (
    Ability::Tenants,
    &[
        "a_message_is_shown_whole_in_every_state",
        "a_scope_holds_for_expired_leases_too",
        "filters_together_find_what_all_of_them_allow",
        "next_due_keeps_to_its_scope",
        "r07_every_field_comes_through_unchanged",
        "r08_s0_38_s0_39_a_key_that_is_not_the_tenant_s_is_refused_and_the_transaction_lives",
        "s08_a_filter_of_a_tenant_never_reaches_another_s_messages",
        "s0_10_s0_12_a_message_of_plain_fields_comes_through",
        "s0_37_s08_a_claim_keeps_to_its_tenant",
        "s0_40_tenant_and_dedupe_key_are_free_without_each_other",
        "s24_what_changed_messages_is_in_the_audit_table_newest_first",
    ],
);

const REPLAYS: (Ability, &[&str]) = (
    Ability::CountsReplays,
    &[
        "operators_that_replay_at_the_same_time_replay_each_message_once",
        "t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed",
    ],
);

/// What only a database with a bell finds out: it wakes for one namespace of several.
pub const NAMESPACES_WAKE: Cannot = &[(Ability::Namespaces, &["p9_many_messages_in_one_call_ring_too"])];

/// Whether a promise is listed, and why.
pub fn listed(lists: &[Cannot], promise: &str) -> Option<&'static str> {
    let matches = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => promise.starts_with(start),
        None => promise == *pattern,
    };
    let reasons = lists.iter().flat_map(|list| list.iter());
    reasons.into_iter().find(|(_, promises)| promises.iter().any(matches)).map(|(why, _)| why.as_str())
}

/// What is listed as impossible is so because of an ability that the layout says it lacks.
#[test]
fn every_reason_is_one_that_the_layout_gives_itself() {
    fn check<S: Shape>() {
        let layout = S::layout();
        let wake = if layout.can(Ability::Namespaces) { &[] } else { NAMESPACES_WAKE };
        for (ability, promises) in S::CANNOT.iter().chain(wake) {
            assert!(!layout.can(*ability), "{} can do {ability}: {promises:?}", layout.name);
        }
    }
    check::<Modkit>();
    check::<Talkie>();
    check::<DebeziumKeep>();
}

pub struct Modkit;

impl Shape for Modkit {
    fn layout() -> Layout {
        Layout::modkit()
    }

    const TABLE: &str = "modkit_outbox_events";
    const TIMES: &[&str] = &["next_attempt_at", "locked_until", "created_at", "updated_at"];

    const CANNOT: Cannot = &[
        ORDER,
        FAIR,
        (Ability::NamespaceShares, &["a_claim_over_two_busy_namespaces_takes_from_both"]),
        BYTES,
        MAX_ATTEMPTS,
        REPLAYS,
        (
            Ability::Keys,
            &[
                "a_message_is_shown_whole_in_every_state",
                "each_filter_alone_finds_its_message",
                "filters_together_find_what_all_of_them_allow",
                "many_messages_are_answered_in_their_order",
                "r06_extremes_are_taken_and_arrive",
                "r07_every_field_comes_through_unchanged",
                "s01_hostile_texts_*",
            ],
        ),
        (
            Ability::DeliveredAt,
            &[
                "s0_15_s0_68_ack_marks_the_row_as_delivered",
                "t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key",
            ],
        ),
    ];
}

pub struct Talkie;

impl Shape for Talkie {
    fn layout() -> Layout {
        in_the_shop(Layout::talkie())
    }

    const TABLE: &str = "outbox";
    const STATUS: &str =
        "case status when 'failed' then 'pending' when 'publishing' then 'processing' when 'published' then 'delivered'
        when 'dead_lettered' then 'dead' else status end";
    const ATTEMPTS: &str = "retry_count";
    const LOCKED_BY: &str = "null";
    const LOCKED: &str = "last_attempt_at";
    const LOCK_TIMEOUT: i64 = 30_000_000;
    const IS_LOCKED: &str = "status = 'publishing'";
    const UPDATED: &str = "coalesce(published_at, last_attempt_at, created_at)";
    const DELIVERED: &str = "published_at";
    const TIMES: &[&str] = &["next_attempt_at", "last_attempt_at", "created_at", "published_at"];

    fn word(state: State) -> &'static str {
        match state {
            State::Pending => "pending",
            State::Processing => "publishing",
            State::Delivered => "published",
            State::Dead => "dead_lettered",
        }
    }

    const CANNOT: Cannot = &[
        ORDER,
        FAIR,
        BYTES,
        MAX_ATTEMPTS,
        NAMESPACES,
        TENANTS,
        REPLAYS,
        (Ability::CountsClaims, &["s0_15_s0_68_ack_marks_the_row_as_delivered"]),
        (
            Ability::Plain,
            &[
                "delivered_rows_are_deleted_if_asked",
                "r06_extremes_are_taken_and_arrive",
                "r07_absent_fields_stay_absent",
                "r13_deleting_ack_answers_for_each_message_of_a_mixed_batch",
                "t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key",
            ],
        ),
        (
            Ability::Updated,
            &[
                "r20_s0_55_a_row_whose_last_attempt_crashed_is_buried_and_says_delivery_unknown",
                "s0_32_every_verb_says_when_it_touched_the_row",
                "t43_replay_puts_a_dead_row_back_with_all_its_attempts",
            ],
        ),
        (
            Ability::Worker,
            &[
                "a_row_that_was_made_dead_by_hand_is_listed_and_replayed_without_its_old_lease",
                "r17_extend_moves_the_end_of_the_lease_and_keeps_the_attempt",
                "s0_53_s0_70_s0_87_s0_91_an_expired_lease_is_claimed_again_by_another_worker",
                "s0_57_claim_sets_state_attempt_owner_and_lease",
                "s0_71_nobody_settles_another_worker_s_row",
                "s0_85_s0_86_a_row_that_an_operator_finished_by_hand_is_not_settled",
            ],
        ),
    ];
}

pub struct DebeziumKeep;

impl Shape for DebeziumKeep {
    fn layout() -> Layout {
        in_the_shop(Layout::debezium_keep())
    }

    const TABLE: &str = "outboxevent";
    const DELIVERED: &str = "delivered_at";
    const TIMES: &[&str] = &["next_attempt_at", "locked_until", "created_at", "updated_at", "delivered_at"];

    fn fit(message: Message) -> Message {
        message.header("event-type", "placed").key("aggregate")
    }

    const CANNOT: Cannot = &[
        ORDER,
        FAIR,
        BYTES,
        MAX_ATTEMPTS,
        NAMESPACES,
        TENANTS,
        REPLAYS,
        (
            Ability::Plain,
            &[
                "r06_extremes_are_taken_and_arrive",
                "r06_whatever_is_refused_leaves_the_transaction_usable",
                "r07_absent_fields_stay_absent",
                "s01_hostile_texts_are_found_where_they_are_and_noted_as_they_are",
            ],
        ),
        (
            Ability::DedupeKeys,
            &[
                "a_purged_row_frees_its_dedupe_key",
                "many_messages_are_answered_in_their_order",
                "r01_s0_46_a_rolled_back_message_leaves_no_row",
                "r03_*",
                "s0_43_*",
                "s0_44_a_duplicate_leaves_the_transaction_usable",
                "s0_88_one_call_with_a_key_twice_writes_one_row",
                "t30_*",
            ],
        ),
    ];
}

/// A table that Postrider does not know, whose UUIDs are bytes and whose texts are the database's usual ones.
pub struct Own<const ON_MYSQL: bool>;

impl<const ON_MYSQL: bool> Shape for Own<ON_MYSQL> {
    fn layout() -> Layout {
        let kind = if ON_MYSQL { "binary" } else { "blob" };
        Layout {
            name: "own".into(),
            names: Names::existing(None, "own_", Self::TABLE).expect("good names"),
            id: Column::typed("id", kind),
            tenant: Some(Column::typed("tenant_id", kind)),
            locked_by: Some(Column::typed("locked_by", kind)),
            ..Layout::modkit()
        }
    }

    const TABLE: &str = "Events";
    const MADE: &str = if ON_MYSQL {
        "create table Events (
           id binary(16) primary key, namespace varchar(200) not null, topic varchar(200) not null, tenant_id binary(16) null,
           dedupe_key varchar(200) null, payload json not null, status varchar(16) not null, attempts int not null default 0,
           next_attempt_at datetime(6) not null, locked_by binary(16) null, locked_until datetime(6) null, last_error text null,
           created_at datetime(6) not null default (utc_timestamp(6)), updated_at datetime(6) not null default (utc_timestamp(6)),
           unique key (dedupe_key, namespace, topic), key (status, next_attempt_at), key (status, locked_until))"
    } else {
        "create table Events (
           id blob primary key, namespace text not null, topic text not null, tenant_id blob null, dedupe_key text null,
           payload text not null, status text not null, attempts integer not null default 0, next_attempt_at integer not null,
           locked_by blob null, locked_until integer null, last_error text null, created_at integer not null,
           updated_at integer not null);
         create unique index events_key on Events (namespace, topic, dedupe_key) where dedupe_key is not null;
         create index events_due on Events (status, next_attempt_at)"
    };
    const TIMES: &[&str] = &["next_attempt_at", "locked_until", "created_at", "updated_at"];
    const CANNOT: Cannot = &[];
}

fn message() -> Message {
    Message::json("shop", "order.placed", &7)
}

/// The fence of a table that does not say who has a row is the attempt's number.
pub async fn stale_settles_change_nothing<H: Harness>() {
    let h = H::fresh().await;
    let store = h.store();
    let stale = h.put_and_claim(message()).await.lease;
    h.expire().await;
    let live = h.claim_one(Uuid::new_v4()).await.lease;
    let before = h.row(live.id).await;
    let error = "stale".to_owned();
    let nack = [Nack { lease: stale, delay: Duration::ZERO, error: error.clone() }];
    let bury = [Bury { lease: stale, error: error.clone() }];
    let release = [Release { lease: stale, delay: Duration::ZERO, error: Some(error) }];
    assert_eq!(store.ack(&[stale], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(store.ack(&[stale], Delivered::Delete).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(store.nack(&nack).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(store.bury(&bury).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(store.release(&release).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(store.extend(&[stale], Duration::from_secs(30)).await.expect("answered"), [None]);
    assert_eq!(h.row(live.id).await, before);
    assert_eq!(store.ack(&[live], Delivered::Keep).await.expect("answered"), [Settled::Done]);
}

/// A row that says no time at all, neither when it is due nor since when it is locked, and no number of attempts, is delivered.
pub async fn rows_without_times_are_delivered<H: Harness>(h: &H, forget: impl AsyncFn(&str)) {
    let id = h.put(message()).await;
    forget("status = 'publishing', last_attempt_at = null").await;
    let claimed = h.claim_one(Uuid::new_v4()).await;
    assert_eq!((claimed.id, claimed.attempts), (id, 1));
    let release = Release { lease: claimed.lease, delay: Duration::ZERO, error: None };
    assert_eq!(h.store().release(&[release]).await.expect("released"), [Settled::Done]);
    forget("next_attempt_at = null, retry_count = null").await;
    let claimed = h.claim_one(Uuid::new_v4()).await;
    assert_eq!((claimed.id, claimed.attempts), (id, 1));
    assert_eq!(h.store().ack(&[claimed.lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
}

/// Ids may be written in upper case, or without hyphens: the row is found again as it is.
pub async fn ids_may_be_written_in_other_ways<H: Harness>(h: &H, rewrite: impl AsyncFn(&str)) {
    for how in ["upper(id)", "replace(id, '-', '')", "id"] {
        let ids = h.put_all([message(), message(), message()]).await;
        rewrite(how).await;
        let claimed = h.claim_all(Uuid::new_v4()).await;
        assert_eq!(claimed.len(), 3, "{how}");
        assert!(claimed.iter().all(|message| ids.contains(&message.id)), "{how}");
        let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
        let store = h.store();
        let renewed = store.extend(&leases, Duration::from_secs(30)).await.expect("renewed");
        assert!(renewed.iter().all(Option::is_some), "{how}");
        let nack = Nack { lease: leases[0], delay: Duration::ZERO, error: "later".to_owned() };
        assert_eq!(store.nack(&[nack]).await.expect("nacked"), [Settled::Done], "{how}");
        let bury = Bury { lease: leases[1], error: "no".to_owned() };
        assert_eq!(store.bury(&[bury]).await.expect("buried"), [Settled::Done], "{how}");
        assert_eq!(store.ack(&leases[2..], Delivered::Keep).await.expect("acked"), [Settled::Done], "{how}");
        let again = h.claim_one(Uuid::new_v4()).await;
        assert_eq!(again.id, leases[0].id, "{how}");
        assert_eq!(store.ack(&[again.lease], Delivered::Delete).await.expect("acked"), [Settled::Done], "{how}");
    }
}

/// Gives rows up by way of the owner's word for failed ones; the owner's state machine lets nothing else pass. A stale one
/// among them is left alone.
pub async fn rows_are_given_up_by_way_of_failed<H: Harness>(h: &H) {
    let store = h.store();
    let leases: Vec<_> = {
        h.put_all([message(), message(), message()]).await;
        h.claim_all(Uuid::new_v4()).await.iter().map(|message| message.lease).collect()
    };
    let bury = |at: usize| Bury { lease: leases[at], error: "no".to_owned() };
    assert_eq!(store.bury(&[bury(0)]).await.expect("it is allowed"), [Settled::Done]);
    let nack = Nack { lease: leases[1], delay: LEASE * 2, error: "later".to_owned() };
    assert_eq!(store.nack(&[nack]).await.expect("nacked"), [Settled::Done]);
    assert_eq!(store.bury(&[bury(1), bury(2)]).await.expect("it is allowed"), [Settled::LeaseLost, Settled::Done]);
    let states =
        [h.row(leases[0].id).await, h.row(leases[1].id).await, h.row(leases[2].id).await].map(|row| row.status);
    assert_eq!(states, [State::Dead, State::Pending, State::Dead]);
    let crashed = h.put_and_claim(message()).await.id;
    h.expire().await;
    assert_eq!(h.sweep(1).await, [crashed], "nacked rows are not due yet");
    assert_eq!(h.row(crashed).await.status, State::Dead);
}

/// The life of messages in a table whose ids, tenants and workers are bytes.
pub async fn uuids_may_be_bytes<H: Harness>() {
    let h = H::fresh().await;
    let (store, tenant) = (h.store(), Uuid::new_v4());
    let keyed = || message().tenant(tenant).dedupe_key(format!("{tenant}/1"));
    let ids = h.put_all([keyed(), message(), message()]).await;
    let again = h.enqueue_many(vec![keyed()]).await.expect("a duplicate is no error");
    assert_eq!((again[0].is_new(), again[0].id()), (false, ids[0]));
    let claimed = h.claim_all(Uuid::new_v4()).await;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), ids);
    assert_eq!(claimed[0].tenant_id, Some(tenant));
    let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
    assert_eq!(store.extend(&leases, Duration::from_secs(60)).await.expect("renewed").iter().flatten().count(), 3);
    let bury = Bury { lease: leases[1], error: "no".to_owned() };
    assert_eq!(store.bury(&[bury]).await.expect("buried"), [Settled::Done]);
    assert_eq!(store.ack(&[leases[2]], Delivered::Delete).await.expect("acked"), [Settled::Done]);
    assert!(store.message(ids[2]).await.expect("looked").is_none());
    let nack = Nack { lease: leases[0], delay: Duration::ZERO, error: "later".to_owned() };
    assert_eq!(store.nack(&[nack]).await.expect("nacked"), [Settled::Done]);
    let record = store.message(ids[0]).await.expect("looked").expect("there");
    assert_eq!((record.tenant_id, record.last_error.as_deref()), (Some(tenant), Some("later")));
    assert_eq!(store.sweep(&postrider::store::Scope::all(), 1, 10).await.expect("swept").buried, [ids[0]]);
}
