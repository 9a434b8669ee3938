//! The layout `modkit`.

use postrider::State;
use postrider::layout::{Ability, Layout};

use crate::harness::{Cannot, On, Table};

pub struct Modkit;

impl Table for Modkit {
    fn layout() -> Layout {
        Layout::modkit()
    }

    const ROWS: &str = "
        select id, status, attempts, null::int as max_attempts, locked_by, last_error,
               (extract(epoch from next_attempt_at) * 1000000)::bigint as next_attempt_at,
               (extract(epoch from locked_until) * 1000000)::bigint as locked_until,
               (extract(epoch from created_at) * 1000000)::bigint as created_at,
               (extract(epoch from updated_at) * 1000000)::bigint as updated_at, null::bigint as delivered_at
        from modkit_outbox_events order by created_at, id";

    const PASS_TIME: &str = "
        update modkit_outbox_events
        set next_attempt_at = next_attempt_at - passed, locked_until = locked_until - passed,
            created_at = created_at - passed, updated_at = updated_at - passed
        from (select $1::bigint * interval '1 microsecond' as passed) as time";

    fn set_status(state: State) -> String {
        format!("status = '{}'", state.as_str())
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
            Ability::DeliveredAt,
            &[
                "s0_15_s0_68_ack_marks_the_row_as_delivered",
                "t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key",
            ],
        ),
        (
            Ability::FairShares,
            &[
                "r24_a_fair_claim_gives_every_lane_its_share",
                "r24_a_fair_claim_keeps_to_its_scope",
                "r24_a_fair_claim_leaves_delayed_and_spent_rows",
                "r24_a_fair_claim_of_nothing_answers_nothing",
                "r24_a_fair_claim_takes_the_longest_due_of_each_lane_and_returns_them_in_order",
                "r24_fair_claims_go_round_all_lanes",
                "r24_lanes_that_nothing_is_due_of_are_passed_over",
                "r24_lanes_of_others_are_passed_over",
                "r24_fair_claims_go_on_behind_hundreds_of_lanes_that_get_nothing",
                "r24_lanes_differ_by_namespace_topic_and_tenant",
                "r24_no_lane_loses_its_turn_when_a_claim_is_cut_by_its_bytes",
                "r24_no_lane_loses_its_turn_when_a_claim_is_smaller_than_the_lanes",
            ],
        ),
        (
            Ability::Keys,
            &[
                "a_message_is_shown_whole_in_every_state",
                "each_filter_alone_finds_its_message",
                "filters_together_find_what_all_of_them_allow",
                "many_messages_are_answered_in_their_order",
                "r06_extremes_are_taken_and_arrive",
                "r07_every_field_comes_through_unchanged",
                "s01_hostile_texts_are_found_where_they_are_and_noted_as_they_are",
                "s01_hostile_texts_in_a_filter_find_nothing_and_change_nothing",
                "t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed",
            ],
        ),
        (
            Ability::MaxAttempts,
            &[
                "s08_a_dispatcher_of_one_tenant_leaves_the_rows_of_others_as_they_are",
                "c12_a_row_s_own_number_decides_when_nack_buries",
                "c12_a_row_s_own_number_of_attempts_wins",
                "c12_the_sweep_goes_by_a_row_s_own_number",
                "r21_suspects_are_claimed_one_at_a_time_if_asked",
                "r21_the_last_attempt_is_counted_by_the_row_s_own_number",
            ],
        ),
        (Ability::NamespaceShares, &["a_claim_over_two_busy_namespaces_takes_from_both"]),
        (
            Ability::OrderByKey,
            &["r59_*", "r60_*", "r61_*", "s08_every_claim_keeps_to_its_tenant_also_with_order_by_key"],
        ),
    ];
}

testkit::conformance!(On<Modkit>);
