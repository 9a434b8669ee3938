//! The layout `packfinderz`.

use postrider::layout::{Ability, Column, Layout, Text};
use postrider::{Message, State};
use uuid::Uuid;

use crate::harness::{Cannot, On, Table, in_the_shop};

pub struct Packfinderz;

impl Table for Packfinderz {
    /// With the topics of the suite among the events, and a text for a key.
    fn layout() -> Layout {
        let mut layout = in_the_shop(Layout::packfinderz());
        if let Text::Column(Column { values, .. }) = &mut layout.topic {
            values.extend(["order.placed".to_owned(), "t".to_owned()]);
        }
        layout
    }

    const AFTER: &str = "
        alter type event_type_enum add value 'order.placed';
        alter type event_type_enum add value 't'";

    const ROWS: &str = "
        select id, case when published_at is not null then 'delivered' when attempt_count >= 10 then 'dead' else 'pending' end as status,
               attempt_count as attempts, null::int as max_attempts, null::uuid as locked_by, last_error,
               null::bigint as next_attempt_at, null::bigint as locked_until,
               (extract(epoch from created_at) * 1000000)::bigint as created_at,
               (extract(epoch from coalesce(published_at, created_at)) * 1000000)::bigint as updated_at,
               (extract(epoch from published_at) * 1000000)::bigint as delivered_at
        from outbox_events order by created_at, id";

    /// Rows that are claimed are locked.
    const PASS_TIME: &str = "
        update outbox_events
        set created_at = created_at - passed, published_at = published_at - passed
        from (select $1::bigint * interval '1 microsecond' as passed) as time
        where id in (select id from outbox_events for update skip locked)";

    fn set_status(state: State) -> String {
        match state {
            State::Pending | State::Processing => "published_at = null, attempt_count = 0".to_owned(),
            State::Delivered => "published_at = now()".to_owned(),
            State::Dead => "published_at = null, attempt_count = 10".to_owned(),
        }
    }

    fn fit(message: Message) -> Message {
        message.header("aggregate-type", "vendor_order").key(Uuid::nil().to_string())
    }

    const CANNOT: Cannot = &[
        (
            Ability::Bytes,
            &[
                "a_claim_always_takes_the_first_row_however_large",
                "r07_any_bytes_arrive_byte_for_byte_on_every_attempt",
                "r07_bytes_arrive_byte_for_byte_with_their_content_type",
            ],
        ),
        (
            Ability::CountsClaims,
            &["s0_15_s0_68_ack_marks_the_row_as_delivered", "s0_81_bury_makes_the_row_dead_with_its_reason"],
        ),
        (
            Ability::CountsCrashes,
            &[
                "i8_the_sweep_leaves_rows_with_attempts_left_alone",
                "r20_a_swept_claim_is_over",
                "r20_s0_55_a_row_whose_last_attempt_crashed_is_buried_and_says_delivery_unknown",
                "r20_s0_55_claim_batch_buries_rows_whose_last_attempt_crashed",
                "r21_a_live_lease_is_no_suspect",
                "r21_a_suspect_that_is_delivered_is_finished",
                "r21_after_two_crashes_a_row_is_claimed_as_a_suspect_only",
                "r21_before_the_last_allowed_attempt_a_crashed_row_is_suspect",
                "r21_claim_batch_takes_a_suspect_alone",
                "r21_one_crash_does_not_make_a_row_suspect",
                "s0_55_s0_82_pending_rows_over_a_lowered_limit_are_buried_and_keep_their_error",
                "the_sweep_leaves_backoffs_alone",
                "the_sweep_works_in_portions",
            ],
        ),
        (
            Ability::DedupeKeys,
            &[
                "a_purged_row_frees_its_dedupe_key",
                "many_messages_are_answered_in_their_order",
                "r01_s0_46_a_rolled_back_message_leaves_no_row",
                "r03_a_key_is_free_again_when_its_first_producer_rolls_back",
                "r03_of_many_producers_with_one_key_one_wins_and_no_transaction_fails",
                "r03_producers_that_wait_for_each_other_get_a_retryable_error",
                "r03_s0_45_s0_89_the_loser_of_a_race_waits_and_learns_the_winner_s_id",
                "s0_35_a_dedupe_key_counts_within_its_namespace_and_topic",
                "s0_43_a_transaction_sees_the_keys_it_wrote_itself",
                "s0_43_s0_44_a_dedupe_key_that_is_there_writes_no_second_row",
                "s0_44_a_duplicate_leaves_the_transaction_usable",
                "s0_88_one_call_with_a_key_twice_writes_one_row",
                "t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key",
                "t30_finished_rows_still_hold_their_dedupe_keys",
                "t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed",
            ],
        ),
        (
            Ability::Delays,
            &[
                "a_delayed_message_is_not_claimable_before_its_time",
                "a_delivery_time_in_the_past_means_now",
                "c7_release_with_a_delay_waits_that_long_and_says_why",
                "each_message_of_a_batch_gets_its_own_delay_and_error",
                "expired_leases_come_before_due_rows",
                "next_due_is_the_end_of_the_next_lease",
                "next_due_is_the_time_of_the_next_delayed_row",
                "next_due_is_zero_when_a_row_is_due",
                "r24_a_fair_claim_leaves_delayed_and_spent_rows",
                "replay_works_in_portions_oldest_first",
                "s0_26_s0_32_s0_50_a_new_row_is_pending_due_now_and_not_leased",
                "s0_52_a_pending_row_is_claimable_once_its_time_has_come",
                "s0_59_what_has_been_due_for_longest_is_claimed_first",
                "s0_69_s0_77_s0_78_s0_79_nack_follows_the_retry_formula",
                "s0_6_stats_count_what_waits_runs_and_is_dead",
                "s0_79_nack_counts_the_delay_from_the_store_s_now",
                "s0_85_s0_86_a_row_that_an_operator_finished_by_hand_is_not_settled",
                "s0_92_failures_reschedule_later_and_later",
                "stats_keep_to_their_scope",
                "stats_of_nothing_are_zero",
            ],
        ),
        (Ability::FairShares, &["r24_a_fair_claim_of_nothing_answers_nothing"]),
        (
            Ability::Leases,
            &[
                "a_claim_stops_once_it_has_its_bytes",
                "a_large_batch_settles_as_one",
                "a_row_that_was_made_dead_by_hand_is_listed_and_replayed_without_its_old_lease",
                "i6_a_random_walk_keeps_to_the_state_machine_seed_1",
                "i6_a_random_walk_keeps_to_the_state_machine_seed_2",
                "i6_a_random_walk_keeps_to_the_state_machine_seed_3",
                "i6_a_random_walk_keeps_to_the_state_machine_seed_4",
                "operators_that_replay_at_the_same_time_replay_each_message_once",
                "r11_s0_72_late_ack_after_reclaim_by_another_worker_is_refused",
                "r12_late_ack_after_reclaim_by_the_same_worker_is_refused",
                "r12_two_attempts_of_a_row_in_one_batch_are_answered_apart",
                "r13_ack_answers_for_each_message_of_a_mixed_batch",
                "r13_bury_answers_for_each_message_of_a_mixed_batch",
                "r13_deleting_ack_answers_for_each_message_of_a_mixed_batch",
                "r13_nack_answers_for_each_message_of_a_mixed_batch",
                "r13_release_answers_for_each_message_of_a_mixed_batch",
                "r13_stale_settles_are_refused_and_change_nothing",
                "r13_stale_settles_of_the_same_worker_are_refused_and_change_nothing",
                "r17_extend_moves_the_end_of_the_lease_and_keeps_the_attempt",
                "r41_purge_never_deletes_rows_that_wait_or_run",
                "s0_11_a_claim_takes_no_more_than_its_limit",
                "s0_53_s0_70_s0_87_s0_91_an_expired_lease_is_claimed_again_by_another_worker",
                "s0_54_a_row_at_its_limit_is_not_claimable",
                "s0_57_claim_sets_state_attempt_owner_and_lease",
                "s0_58_s0_81_s0_86_the_last_failed_attempt_makes_the_row_dead",
                "s0_60_s0_90_parallel_workers_never_claim_the_same_row",
                "s0_61_a_batch_with_retried_rows_keeps_the_order_of_enqueueing",
                "s0_71_s0_72_ack_after_another_worker_took_over_is_an_error",
                "s0_73_nack_after_another_worker_took_over_is_an_error",
                "s21_no_call_lists_or_changes_more_than_the_largest_change",
            ],
        ),
        (
            Ability::MaxAttempts,
            &[
                "c12_a_row_s_own_number_decides_when_nack_buries",
                "c12_a_row_s_own_number_of_attempts_wins",
                "c12_the_sweep_goes_by_a_row_s_own_number",
                "r21_suspects_are_claimed_one_at_a_time_if_asked",
                "r21_the_last_attempt_is_counted_by_the_row_s_own_number",
            ],
        ),
        (
            Ability::Namespaces,
            &[
                "a_claim_over_two_busy_namespaces_takes_from_both",
                "discard_deletes_dead_messages_and_frees_their_dedupe_keys",
                "each_filter_alone_finds_its_message",
                "p9_many_messages_in_one_call_ring_too",
                "r21_suspects_keep_to_the_scope",
                "r24_a_fair_claim_keeps_to_its_scope",
                "r24_the_row_due_for_longest_is_claimed_whatever_its_namespace",
                "s08_purge_keeps_to_its_scope",
                "s08_the_overview_keeps_to_its_scope",
                "s0_13_s0_14_s0_17_claim_batch_takes_its_own_namespace_up_to_its_size",
                "s0_17_a_claim_keeps_to_its_namespaces",
                "t42_purge_by_an_operator_is_a_purge",
                "the_overview_counts_by_namespace_topic_and_state",
                "the_sweep_keeps_to_its_scope",
            ],
        ),
        (
            Ability::OrderByKey,
            &["r59_*", "r60_*", "r61_*", "s08_every_claim_keeps_to_its_tenant_also_with_order_by_key"],
        ),
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
            Ability::Tenants,
            &[
                "s08_a_dispatcher_of_one_tenant_leaves_the_rows_of_others_as_they_are",
                "a_message_is_shown_whole_in_every_state",
                "a_scope_holds_for_expired_leases_too",
                "filters_together_find_what_all_of_them_allow",
                "next_due_keeps_to_its_scope",
                "r07_every_field_comes_through_unchanged",
                "r08_s0_38_s0_39_a_key_that_is_not_the_tenant_s_is_refused_and_the_transaction_lives",
                "r24_lanes_differ_by_namespace_topic_and_tenant",
                "s08_a_filter_of_a_tenant_never_reaches_another_s_messages",
                "s0_10_s0_12_a_message_of_plain_fields_comes_through",
                "s0_37_s08_a_claim_keeps_to_its_tenant",
                "s0_40_tenant_and_dedupe_key_are_free_without_each_other",
                "s24_what_changed_messages_is_in_the_audit_table_newest_first",
            ],
        ),
        (
            Ability::Topics,
            &[
                "r07_any_json_arrives_as_the_same_value_with_exact_numbers",
                "r07_the_values_that_bit_others_arrive_unchanged",
                "r24_a_fair_claim_gives_every_lane_its_share",
                "r24_a_fair_claim_takes_the_longest_due_of_each_lane_and_returns_them_in_order",
                "r24_fair_claims_go_round_all_lanes",
                "r24_lanes_that_nothing_is_due_of_are_passed_over",
                "r24_lanes_of_others_are_passed_over",
                "r24_fair_claims_go_on_behind_hundreds_of_lanes_that_get_nothing",
                "r24_no_lane_loses_its_turn_when_a_claim_is_cut_by_its_bytes",
                "r24_no_lane_loses_its_turn_when_a_claim_is_smaller_than_the_lanes",
            ],
        ),
        (
            Ability::Updated,
            &[
                "purge_tells_delivered_from_dead",
                "s0_32_every_verb_says_when_it_touched_the_row",
                "t43_replay_puts_a_dead_row_back_with_all_its_attempts",
                "what_is_not_there_is_an_empty_answer",
            ],
        ),
        (Ability::UsualAttempts, &["s0_58_three_attempts_mean_three_deliveries"]),
    ];
}

testkit::conformance!(On<Packfinderz>);
