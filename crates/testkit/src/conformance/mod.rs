//! The conformance suite of the store seam: the same promises, kept by every store.
//!
//! A store implements [`Harness`] and calls [`conformance!`](crate::conformance!) once; each promise becomes a test of
//! its own, named after it. Names begin with what they cover: `s0_57` is an item of seed 0, `r11` and `s08` rows of the
//! scenarios, `t30` a trap, `c12` a settled disagreement, `p9` a promise of the design, `i6` a checker. Nothing in here
//! knows a database.

#[allow(missing_docs)] // the names are the promises
pub mod claim;
#[allow(missing_docs)] // the names are the promises
pub mod enqueue;
mod exact_json;
#[allow(missing_docs)] // the names are the promises
pub mod fence;
#[allow(missing_docs)] // the names are the promises
pub mod fidelity;
pub mod given;
mod harness;
pub mod inputs;
#[allow(missing_docs)] // the names are the promises
pub mod load;
#[allow(missing_docs)] // the names are the promises
pub mod operate;
#[allow(missing_docs)] // the names are the promises
pub mod order;
#[allow(missing_docs)] // the names are the promises
pub mod order_by_key;
#[allow(missing_docs)] // the names are the promises
pub mod outbox;
#[allow(missing_docs)] // the names are the promises
pub mod retain;
mod scene;
mod sea_orm;
#[allow(missing_docs)] // the names are the promises
pub mod settle;
#[allow(missing_docs)] // the names are the promises
pub mod stats;
#[allow(missing_docs)] // the names are the promises
pub mod suspects;
#[allow(missing_docs)] // the names are the promises
pub mod tenants;
#[allow(missing_docs)] // the names are the promises
pub mod wake;
#[allow(missing_docs)] // the names are the promises
pub mod walk;

pub use harness::{Harness, RowView};
pub use scene::LEASE;
pub use sea_orm::{SeaOrm, WithSeaOrm};

/// Makes one test per promise for a [`Harness`].
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::conformance_of_producers! { $harness }
        $crate::conformance_tests! { $harness, claim,
            s0_57_claim_sets_state_attempt_owner_and_lease
            s0_31_a_claim_says_when_the_message_was_written_and_how_old_it_is
            s0_52_a_pending_row_is_claimable_once_its_time_has_come
            a_delayed_message_is_not_claimable_before_its_time
            a_delivery_time_in_the_past_means_now
            s0_53_s0_70_s0_87_s0_91_an_expired_lease_is_claimed_again_by_another_worker
            s0_84_a_live_lease_is_not_claimed
            s0_54_a_row_at_its_limit_is_not_claimable
            s0_58_three_attempts_mean_three_deliveries
            c12_a_row_s_own_number_of_attempts_wins
            s0_17_a_claim_keeps_to_its_namespaces
            s0_37_s08_a_claim_keeps_to_its_tenant
            a_scope_holds_for_expired_leases_too
            s0_11_a_claim_takes_no_more_than_its_limit
            a_claim_stops_once_it_has_its_bytes
            a_claim_always_takes_the_first_row_however_large
            nothing_to_claim_is_an_empty_answer
            s0_68_s0_85_a_delivered_row_is_never_claimed
            s0_86_a_dead_row_is_never_claimed
            s0_60_s0_90_parallel_workers_never_claim_the_same_row
        }
        $crate::conformance_tests! { $harness, order,
            s0_59_s0_61_a_batch_is_in_the_order_of_enqueueing
            s0_61_a_batch_with_retried_rows_keeps_the_order_of_enqueueing
            s0_59_what_has_been_due_for_longest_is_claimed_first
            s0_59_rows_due_at_the_same_time_are_claimed_in_the_order_of_enqueueing
            expired_leases_come_before_due_rows
            r24_the_row_due_for_longest_is_claimed_whatever_its_namespace
            a_claim_over_two_busy_namespaces_takes_from_both
            r24_a_fair_claim_gives_every_lane_its_share
            r24_lanes_differ_by_namespace_topic_and_tenant
            r24_a_fair_claim_takes_the_longest_due_of_each_lane_and_returns_them_in_order
            r24_fair_claims_go_round_all_lanes
            r24_lanes_that_nothing_is_due_of_are_passed_over
            r24_lanes_of_others_are_passed_over
            r24_fair_claims_go_on_behind_hundreds_of_lanes_that_get_nothing
            r24_no_lane_loses_its_turn_when_a_claim_is_smaller_than_the_lanes
            r24_no_lane_loses_its_turn_when_a_claim_is_cut_by_its_bytes
            r24_a_fair_claim_keeps_to_its_scope
            r24_a_fair_claim_of_nothing_answers_nothing
            r24_a_fair_claim_leaves_delayed_and_spent_rows
        }
        $crate::conformance_tests! { $harness, order_by_key,
            r59_a_head_in_backoff_holds_up_its_key_and_nobody_else
            r59_the_run_of_a_key_is_claimed_at_once_and_in_order
            r59_the_run_of_a_key_is_bounded
            r59_no_more_than_asked_for_come_after_the_first_of_their_keys
            r59_a_run_ends_before_a_row_that_may_not_be_claimed
            r59_a_claim_that_is_cut_short_keeps_the_first_of_a_key
            r60_when_the_lease_of_a_run_is_over_it_is_claimed_from_its_head
            r61_a_dead_head_is_skipped
            r61_a_head_over_a_lowered_limit_is_found_behind_thousands_of_followers
            r61_a_replayed_message_goes_out_late_and_before_what_still_waits
            r59_followers_that_are_released_wait_for_their_head
            r59_a_fair_claim_takes_the_first_of_a_key
            r59_suspects_are_claimed_from_the_head_of_their_key
            r59_s09_the_same_key_of_two_tenants_is_two_lines
            r59_s09_a_busy_key_of_one_tenant_does_not_hide_the_same_key_of_another
            r59_thousands_of_followers_starve_nobody
            r59_thousands_that_wait_for_one_under_way_starve_nobody
            r59_s08_one_tenant_s_busy_keys_are_not_in_another_s_way
            r59_what_waits_for_its_key_is_not_coming_by_itself
            r60_claimers_at_the_same_time_never_split_a_key
        }
        $crate::conformance_tests! { $harness, suspects,
            r21_one_crash_does_not_make_a_row_suspect
            r21_after_two_crashes_a_row_is_claimed_as_a_suspect_only
            r21_before_the_last_allowed_attempt_a_crashed_row_is_suspect
            r21_the_last_attempt_is_counted_by_the_row_s_own_number
            r21_suspects_are_claimed_one_at_a_time_if_asked
            r21_a_suspect_that_is_delivered_is_finished
            r21_clean_failures_do_not_make_a_row_suspect
            r21_a_live_lease_is_no_suspect
            r21_suspects_keep_to_the_scope
        }
        $crate::conformance_tests! { $harness, settle,
            s0_15_s0_68_ack_marks_the_row_as_delivered
            s0_16_s0_69_s0_75_s0_76_nack_puts_the_row_back_with_its_error_and_without_its_lease
            s0_79_nack_counts_the_delay_from_the_store_s_now
            s0_81_bury_makes_the_row_dead_with_its_reason
            c7_release_gives_the_attempt_back_and_keeps_the_due_time
            c7_release_with_a_delay_waits_that_long_and_says_why
            c7_release_without_a_reason_keeps_the_last_error
            r17_extend_moves_the_end_of_the_lease_and_keeps_the_attempt
            r17_a_lease_from_before_its_renewal_still_settles
            delivered_rows_are_deleted_if_asked
            t30_deleting_delivered_rows_keeps_those_with_a_dedupe_key
            s0_32_every_verb_says_when_it_touched_the_row
            a_batch_of_nothing_is_fine
            r13_ack_answers_for_each_message_of_a_mixed_batch
            r13_deleting_ack_answers_for_each_message_of_a_mixed_batch
            r13_nack_answers_for_each_message_of_a_mixed_batch
            r13_bury_answers_for_each_message_of_a_mixed_batch
            r13_release_answers_for_each_message_of_a_mixed_batch
            r13_extend_answers_for_each_message_of_a_mixed_batch
            each_message_of_a_batch_gets_its_own_delay_and_error
            a_large_batch_settles_as_one
        }
        $crate::conformance_tests! { $harness, fence,
            r11_s0_72_late_ack_after_reclaim_by_another_worker_is_refused
            r12_late_ack_after_reclaim_by_the_same_worker_is_refused
            r12_two_attempts_of_a_row_in_one_batch_are_answered_apart
            r13_stale_settles_are_refused_and_change_nothing
            r13_stale_settles_of_the_same_worker_are_refused_and_change_nothing
            r14_ack_after_expiry_without_reclaim_is_accepted
            r14_nack_and_extend_after_expiry_without_reclaim_are_accepted
            s0_71_nobody_settles_another_worker_s_row
            s0_71_a_lease_of_another_row_settles_neither
            s0_83_a_row_that_was_never_claimed_is_not_settled
            a_row_that_does_not_exist_is_not_settled
            a_claim_is_settled_once
            a_released_claim_is_over
            s0_85_s0_86_a_row_that_an_operator_finished_by_hand_is_not_settled
            r20_a_swept_claim_is_over
            a_late_settle_of_a_replayed_row_is_refused
            s0_65_s0_90_workers_that_take_rows_from_each_other_ack_each_row_once
        }
        $crate::conformance_tests! { $harness, retain,
            r20_s0_55_a_row_whose_last_attempt_crashed_is_buried_and_says_delivery_unknown
            s0_55_s0_82_pending_rows_over_a_lowered_limit_are_buried_and_keep_their_error
            i8_the_sweep_leaves_rows_with_attempts_left_alone
            t04_the_sweep_never_touches_a_live_lease_or_a_finished_row
            the_sweep_leaves_backoffs_alone
            c12_the_sweep_goes_by_a_row_s_own_number
            the_sweep_keeps_to_its_scope
            the_sweep_works_in_portions
            t42_purge_deletes_delivered_rows_of_the_age_only
            purge_tells_delivered_from_dead
            r41_purge_never_deletes_rows_that_wait_or_run
            t42_purge_works_in_portions_oldest_first
            s08_purge_keeps_to_its_scope
            a_purged_row_frees_its_dedupe_key
        }
        $crate::conformance_tests! { $harness, operate,
            t43_replay_puts_a_dead_row_back_with_all_its_attempts
            s0_85_replay_and_discard_touch_dead_rows_only
            a_row_that_was_made_dead_by_hand_is_listed_and_replayed_without_its_old_lease
            replay_works_in_portions_oldest_first
            t43_a_message_lives_through_two_replays_and_says_how_often_it_was_replayed
            each_filter_alone_finds_its_message
            filters_together_find_what_all_of_them_allow
            signs_in_a_part_of_an_error_mean_themselves
            pages_of_messages_that_died_at_the_same_time_leave_none_out
            a_list_goes_on_after_a_message_that_is_gone
            s21_no_call_lists_or_changes_more_than_the_largest_change
            discard_deletes_dead_messages_and_frees_their_dedupe_keys
            s24_what_changed_messages_is_in_the_audit_table_newest_first
            s24_who_asks_must_be_said
            t42_purge_by_an_operator_is_a_purge
            the_overview_counts_by_namespace_topic_and_state
            s08_the_overview_keeps_to_its_scope
            a_message_is_shown_whole_in_every_state
            what_is_not_there_is_an_empty_answer
            s08_a_filter_of_a_tenant_never_reaches_another_s_messages
            s01_hostile_texts_in_a_filter_find_nothing_and_change_nothing
            s01_hostile_texts_are_found_where_they_are_and_noted_as_they_are
            s01_a_filter_with_the_nul_character_is_refused
            operators_that_replay_at_the_same_time_replay_each_message_once
        }
        $crate::conformance_tests! { $harness, stats,
            s0_6_stats_count_what_waits_runs_and_is_dead
            stats_say_for_how_long_the_oldest_due_row_waits
            stats_of_nothing_are_zero
            stats_keep_to_their_scope
            next_due_is_nothing_when_no_row_waits_or_runs
            next_due_is_the_time_of_the_next_delayed_row
            next_due_is_the_end_of_the_next_lease
            next_due_is_zero_when_a_row_is_due
            next_due_keeps_to_its_scope
        }
        $crate::conformance_tests! { $harness, outbox,
            s0_10_s0_12_a_message_of_plain_fields_comes_through
            s0_13_s0_14_s0_17_claim_batch_takes_its_own_namespace_up_to_its_size
            s0_13_errors_are_of_the_application_s_own_type
            s0_15_ack_by_id_delivers
            s0_71_s0_72_ack_after_another_worker_took_over_is_an_error
            s0_73_nack_after_another_worker_took_over_is_an_error
            s0_71_what_was_never_claimed_cannot_be_acked
            r14_ack_after_expiry_is_accepted_while_nobody_took_over
            s0_69_s0_77_s0_78_s0_79_nack_follows_the_retry_formula
            s0_58_s0_81_s0_86_the_last_failed_attempt_makes_the_row_dead
            c12_a_row_s_own_number_decides_when_nack_buries
            s0_92_failures_reschedule_later_and_later
            r20_s0_55_claim_batch_buries_rows_whose_last_attempt_crashed
            r21_claim_batch_takes_a_suspect_alone
        }
        $crate::conformance_tests! { $harness, tenants,
            s08_every_claim_keeps_to_its_tenant_also_with_order_by_key
            s08_a_dispatcher_of_one_tenant_leaves_the_rows_of_others_as_they_are
        }
        $crate::conformance_tests! { $harness, wake,
            p9_a_commit_rings_an_armed_bell
            p9_many_messages_in_one_call_ring_too
            p9_a_transaction_that_was_open_while_arming_is_not_missed
            p9_a_bell_that_was_busy_can_be_armed_once_the_transaction_ended
            p9_a_transaction_open_since_before_arming_that_enqueues_later_rings
            r01_after_a_rollback_nothing_is_there_to_wake_for
            a_wait_that_was_dropped_loses_no_ring
            a_dispatcher_with_too_much_to_do_wakes_the_others
            every_sleeper_hears_a_commit
            a_bell_can_be_armed_again_and_again
        }
        $crate::conformance_tests! { $harness, walk,
            i6_a_random_walk_keeps_to_the_state_machine_seed_1
            i6_a_random_walk_keeps_to_the_state_machine_seed_2
            i6_a_random_walk_keeps_to_the_state_machine_seed_3
            i6_a_random_walk_keeps_to_the_state_machine_seed_4
        }
    };
}

/// Makes one test per promise about producers, for another driver of a store that [`conformance!`](crate::conformance!)
/// runs for.
#[macro_export]
macro_rules! conformance_of_producers {
    ($harness:ty) => {
        $crate::conformance_tests! { $harness, enqueue,
            s0_26_s0_32_s0_50_a_new_row_is_pending_due_now_and_not_leased
            s0_9_the_row_has_the_id_of_the_message
            r01_s0_46_a_rolled_back_message_leaves_no_row
            s0_42_a_message_is_not_claimable_before_its_commit
            s0_43_s0_44_a_dedupe_key_that_is_there_writes_no_second_row
            s0_44_a_duplicate_leaves_the_transaction_usable
            s0_88_one_call_with_a_key_twice_writes_one_row
            s0_43_a_transaction_sees_the_keys_it_wrote_itself
            s0_35_a_dedupe_key_counts_within_its_namespace_and_topic
            t30_finished_rows_still_hold_their_dedupe_keys
            r03_s0_45_s0_89_the_loser_of_a_race_waits_and_learns_the_winner_s_id
            r03_a_key_is_free_again_when_its_first_producer_rolls_back
            r03_producers_that_wait_for_each_other_get_a_retryable_error
            r08_s0_38_s0_39_a_key_that_is_not_the_tenant_s_is_refused_and_the_transaction_lives
            s0_40_tenant_and_dedupe_key_are_free_without_each_other
            r06_if_one_of_many_messages_is_refused_none_is_written
            many_messages_are_answered_in_their_order
            no_message_at_all_is_fine
            r07_every_field_comes_through_unchanged
            r07_absent_fields_stay_absent
            r07_bytes_arrive_byte_for_byte_with_their_content_type
            r07_json_is_the_same_value_and_the_same_bytes_on_every_attempt
        }
        $crate::conformance_tests! { $harness, load,
            r01_what_many_producers_committed_is_there_and_nothing_else
            r03_of_many_producers_with_one_key_one_wins_and_no_transaction_fails
            r06_extremes_are_taken_and_arrive
            r06_whatever_is_refused_leaves_the_transaction_usable
        }
        $crate::conformance_tests! { $harness, fidelity,
            r07_any_bytes_arrive_byte_for_byte_on_every_attempt
            r07_any_json_arrives_as_the_same_value_with_exact_numbers
            r07_the_values_that_bit_others_arrive_unchanged
        }
    };
}

/// Promises that are about something which happens in the end: where it does not, they wait.
const WAITS: [&str; 1] = ["p9_many_messages_in_one_call_ring_too"];

/// A promise that a store says it cannot keep is run all the same, and must fail: so the list of what it cannot do stays true. One that
/// never ends has failed only if it is about waiting.
#[doc(hidden)]
pub async fn assert_fails(promise: &str, why: &str, run: impl Future<Output = ()>) {
    use futures::FutureExt;
    let run = std::panic::AssertUnwindSafe(run).catch_unwind();
    match tokio::time::timeout(std::time::Duration::from_secs(240), run).await {
        Ok(Err(_failed)) => {}
        Ok(Ok(())) => panic!("{promise} is kept, although it is listed under {why:?}; take it off the list"),
        Err(_) if WAITS.contains(&promise) => {}
        Err(_) => panic!("{promise}, which is listed under {why:?}, neither failed nor came to an end"),
    }
}

/// The tests of one module of the suite.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($harness:ty, $module:ident, $($promise:ident)*) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    type Harness = $harness;
                    // A server that cannot be had is never the failure that is expected.
                    let harness = <Harness as $crate::conformance::Harness>::fresh().await;
                    let promise = $crate::conformance::$module::$promise(harness);
                    match <Harness as $crate::conformance::Harness>::cannot(stringify!($promise)) {
                        None => promise.await,
                        Some(why) => $crate::conformance::assert_fails(stringify!($promise), why, promise).await,
                    }
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_of_the_suite_is_run() {
        let list = include_str!("mod.rs");
        let modules = [
            include_str!("enqueue.rs"),
            include_str!("claim.rs"),
            include_str!("fidelity.rs"),
            include_str!("load.rs"),
            include_str!("order.rs"),
            include_str!("suspects.rs"),
            include_str!("settle.rs"),
            include_str!("fence.rs"),
            include_str!("retain.rs"),
            include_str!("operate.rs"),
            include_str!("stats.rs"),
            include_str!("outbox.rs"),
            include_str!("tenants.rs"),
            include_str!("wake.rs"),
            include_str!("walk.rs"),
        ];
        for line in modules.iter().flat_map(|module| module.lines()) {
            let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            assert!(list.lines().any(|line| line.trim() == name), "{name} is missing in the list");
        }
    }
}
