//! The layout `valinor`.

use postrider::layout::{Ability, Layout};
use postrider::{Message, State};
use uuid::Uuid;

use crate::harness::{Cannot, On, Table, in_the_shop};

pub struct Valinor;

const TENANT: Uuid = Uuid::from_u128(7);

impl Table for Valinor {
    fn layout() -> Layout {
        in_the_shop(Layout::valinor())
    }

    const BEFORE: &str = "
        create table tenants (id uuid primary key);
        insert into tenants values ('00000000-0000-0000-0000-000000000007');
        create table channel_messages (id uuid primary key);
        insert into channel_messages values ('00000000-0000-0000-0000-000000000001')";

    /// The suite has messages of many tenants.
    const AFTER: &str = "alter table channel_outbox drop constraint channel_outbox_tenant_id_fkey";

    const ROWS: &str = "
        select id, case status when 'sending' then 'processing' when 'sent' then 'delivered' else status end as status,
               attempt_count as attempts, max_attempts, null::uuid as locked_by, last_error,
               (extract(epoch from next_attempt_at) * 1000000)::bigint as next_attempt_at,
               (extract(epoch from locked_at + interval '30 seconds') * 1000000)::bigint as locked_until,
               (extract(epoch from created_at) * 1000000)::bigint as created_at,
               (extract(epoch from updated_at) * 1000000)::bigint as updated_at,
               (extract(epoch from sent_at) * 1000000)::bigint as delivered_at
        from channel_outbox order by created_at, id";

    const PASS_TIME: &str = "
        update channel_outbox
        set next_attempt_at = next_attempt_at - passed, locked_at = locked_at - passed, sent_at = sent_at - passed,
            created_at = created_at - passed, updated_at = updated_at - passed
        from (select $1::bigint * interval '1 microsecond' as passed) as time";

    fn set_status(state: State) -> String {
        let word = match state {
            State::Pending => "pending",
            State::Processing => "sending",
            State::Delivered => "sent",
            State::Dead => "dead",
        };
        format!("status = '{word}'")
    }

    /// A tenant of the message's own stays: the last one counts.
    fn fit(message: Message) -> Message {
        let message = match message.tenant_id() {
            Some(_) => message,
            None => message.tenant(TENANT),
        };
        message.key("recipient").header("channel-message-id", Uuid::from_u128(1).to_string())
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
            Ability::DedupeKeys,
            &[
                "a_message_is_shown_whole_in_every_state",
                "a_purged_row_frees_its_dedupe_key",
                "many_messages_are_answered_in_their_order",
                "r01_s0_46_a_rolled_back_message_leaves_no_row",
                "r03_a_key_is_free_again_when_its_first_producer_rolls_back",
                "r03_of_many_producers_with_one_key_one_wins_and_no_transaction_fails",
                "r03_producers_that_wait_for_each_other_get_a_retryable_error",
                "r03_s0_45_s0_89_the_loser_of_a_race_waits_and_learns_the_winner_s_id",
                "r07_every_field_comes_through_unchanged",
                "r08_s0_38_s0_39_a_key_that_is_not_the_tenant_s_is_refused_and_the_transaction_lives",
                "s0_10_s0_12_a_message_of_plain_fields_comes_through",
                "s0_35_a_dedupe_key_counts_within_its_namespace_and_topic",
                "s0_40_tenant_and_dedupe_key_are_free_without_each_other",
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
            Ability::FairTopics,
            &[
                "r24_a_fair_claim_gives_every_lane_its_share",
                "r24_fair_claims_go_on_behind_hundreds_of_lanes_that_get_nothing",
                "r24_no_lane_loses_its_turn_when_a_claim_is_cut_by_its_bytes",
                "r24_no_lane_loses_its_turn_when_a_claim_is_smaller_than_the_lanes",
            ],
        ),
        (Ability::LeaseLength, &["s0_32_every_verb_says_when_it_touched_the_row"]),
        (
            Ability::Namespaces,
            &[
                "a_claim_over_two_busy_namespaces_takes_from_both",
                "a_scope_holds_for_expired_leases_too",
                "discard_deletes_dead_messages_and_frees_their_dedupe_keys",
                "each_filter_alone_finds_its_message",
                "filters_together_find_what_all_of_them_allow",
                "next_due_is_the_time_of_the_next_delayed_row",
                "p9_many_messages_in_one_call_ring_too",
                "r21_suspects_keep_to_the_scope",
                "r24_a_fair_claim_keeps_to_its_scope",
                "r24_lanes_differ_by_namespace_topic_and_tenant",
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
            Ability::UsualAttempts,
            &[
                "r20_a_swept_claim_is_over",
                "r20_s0_55_a_row_whose_last_attempt_crashed_is_buried_and_says_delivery_unknown",
                "r20_s0_55_claim_batch_buries_rows_whose_last_attempt_crashed",
                "r21_before_the_last_allowed_attempt_a_crashed_row_is_suspect",
                "r24_a_fair_claim_leaves_delayed_and_spent_rows",
                "s0_26_s0_32_s0_50_a_new_row_is_pending_due_now_and_not_leased",
                "s0_54_a_row_at_its_limit_is_not_claimable",
                "s0_55_s0_82_pending_rows_over_a_lowered_limit_are_buried_and_keep_their_error",
                "s0_58_s0_81_s0_86_the_last_failed_attempt_makes_the_row_dead",
                "s0_58_three_attempts_mean_three_deliveries",
                "the_sweep_leaves_backoffs_alone",
                "the_sweep_works_in_portions",
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

testkit::conformance!(On<Valinor>);
