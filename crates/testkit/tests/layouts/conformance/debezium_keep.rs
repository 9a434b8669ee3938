//! The layout `debezium_keep`.

use postrider::layout::{Ability, Layout};
use postrider::{Message, State};

use crate::harness::{Cannot, On, Table, in_the_shop};

pub struct DebeziumKeep;

impl Table for DebeziumKeep {
    fn layout() -> Layout {
        in_the_shop(Layout::debezium_keep())
    }

    const ROWS: &str = "
        select id, status, attempts, null::int as max_attempts, locked_by, last_error,
               (extract(epoch from next_attempt_at) * 1000000)::bigint as next_attempt_at,
               (extract(epoch from locked_until) * 1000000)::bigint as locked_until,
               (extract(epoch from created_at) * 1000000)::bigint as created_at,
               (extract(epoch from updated_at) * 1000000)::bigint as updated_at,
               (extract(epoch from delivered_at) * 1000000)::bigint as delivered_at
        from outboxevent order by created_at, id";

    const PASS_TIME: &str = "
        update outboxevent
        set next_attempt_at = next_attempt_at - passed, locked_until = locked_until - passed, delivered_at = delivered_at - passed,
            created_at = created_at - passed, updated_at = updated_at - passed
        from (select $1::bigint * interval '1 microsecond' as passed) as time";

    fn set_status(state: State) -> String {
        format!("status = '{}'", state.as_str())
    }

    fn fit(message: Message) -> Message {
        message.header("event-type", "placed").key("aggregate")
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
        (Ability::CountsReplays, &["operators_that_replay_at_the_same_time_replay_each_message_once"]),
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
            Ability::FairShares,
            &[
                "r24_a_fair_claim_leaves_delayed_and_spent_rows",
                "r24_a_fair_claim_of_nothing_answers_nothing",
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
                "next_due_is_the_time_of_the_next_delayed_row",
                "p9_many_messages_in_one_call_ring_too",
                "r21_suspects_keep_to_the_scope",
                "r24_a_fair_claim_keeps_to_its_scope",
                "r24_the_row_due_for_longest_is_claimed_whatever_its_namespace",
                "s08_purge_keeps_to_its_scope",
                "s08_the_overview_keeps_to_its_scope",
                "s0_13_s0_14_s0_17_claim_batch_takes_its_own_namespace_up_to_its_size",
                "s0_17_a_claim_keeps_to_its_namespaces",
                "stats_keep_to_their_scope",
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
                "r24_a_fair_claim_gives_every_lane_its_share",
                "r24_lanes_differ_by_namespace_topic_and_tenant",
                "s08_a_filter_of_a_tenant_never_reaches_another_s_messages",
                "s0_10_s0_12_a_message_of_plain_fields_comes_through",
                "s0_37_s08_a_claim_keeps_to_its_tenant",
                "s0_40_tenant_and_dedupe_key_are_free_without_each_other",
                "s24_what_changed_messages_is_in_the_audit_table_newest_first",
            ],
        ),
    ];
}

testkit::conformance!(On<DebeziumKeep>);
