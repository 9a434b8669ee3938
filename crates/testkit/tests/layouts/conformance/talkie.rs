//! The layout `talkie`.

use postrider::State;
use postrider::layout::{Ability, Layout};

use crate::harness::{Cannot, On, Table, in_the_shop};

pub struct Talkie;

impl Table for Talkie {
    fn layout() -> Layout {
        in_the_shop(Layout::talkie())
    }

    const ROWS: &str = "
        select id, case status when 'failed' then 'pending' when 'publishing' then 'processing' when 'published' then 'delivered'
                 when 'dead_lettered' then 'dead' else status end as status,
               retry_count as attempts, null::int as max_attempts, null::uuid as locked_by, last_error,
               (extract(epoch from next_attempt_at) * 1000000)::bigint as next_attempt_at,
               case when status = 'publishing' then (extract(epoch from last_attempt_at + interval '30 seconds') * 1000000)::bigint end as locked_until,
               (extract(epoch from created_at) * 1000000)::bigint as created_at,
               (extract(epoch from coalesce(published_at, last_attempt_at, created_at)) * 1000000)::bigint as updated_at,
               (extract(epoch from published_at) * 1000000)::bigint as delivered_at
        from outbox order by created_at, id";

    const PASS_TIME: &str = "
        update outbox
        set next_attempt_at = next_attempt_at - passed, last_attempt_at = last_attempt_at - passed,
            created_at = created_at - passed, published_at = published_at - passed
        from (select $1::bigint * interval '1 microsecond' as passed) as time";

    fn set_status(state: State) -> String {
        let word = match state {
            State::Pending => "pending",
            State::Processing => "publishing",
            State::Delivered => "published",
            State::Dead => "dead_lettered",
        };
        format!("status = '{word}'")
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
        (Ability::CountsClaims, &["s0_15_s0_68_ack_marks_the_row_as_delivered"]),
        (Ability::CountsReplays, &["operators_that_replay_at_the_same_time_replay_each_message_once"]),
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
        (Ability::Headers, &["t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed"]),
        (Ability::LeaseLength, &[]),
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
                "s0_35_a_dedupe_key_counts_within_its_namespace_and_topic",
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
                "delivered_rows_are_deleted_if_asked",
                "r06_extremes_are_taken_and_arrive",
                "r07_absent_fields_stay_absent",
                "r13_deleting_ack_answers_for_each_message_of_a_mixed_batch",
                "t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key",
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

testkit::conformance!(On<Talkie>);
