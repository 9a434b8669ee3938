//! What a changelog promises, on every database, by the ids of the first seed's requirements.

pub mod consumers;
pub mod enablement;
pub mod flow;
pub mod identifiers;
pub mod migration;
pub mod misuse;
pub mod own;
pub mod payload;
pub mod references;
pub mod retrieval;
pub mod table;
pub mod values;
pub mod versionstamp;

/// Makes one test per promise for a scene.
#[macro_export]
macro_rules! changelog_promises {
    ($scene:ty) => {
        $crate::changelog_promises! { $scene:
            enablement::s1_1_s1_2_s1_3_it_is_off_until_the_application_switches_it_on
            enablement::s1_4_the_tables_are_there_whether_it_is_on_or_not
            enablement::s1_5_s1_50_while_it_is_off_nothing_is_written_and_the_list_is_empty
            enablement::s1_5_s1_50_what_was_written_is_listed_after_it_is_switched_off_again
            enablement::s1_6_a_unit_of_work_leaves_one_entry_however_many_rows_it_changes
            enablement::s1_7_entries_are_kept_whatever_the_store_purges

            versionstamp::s1_8_the_counter_is_an_unsigned_integer_in_the_settings
            versionstamp::s1_8_s1_11_versions_go_beyond_64_bits
            versionstamp::s1_8_s1_45_the_last_version_is_used_and_then_no_more
            versionstamp::s1_9_s1_19_the_first_version_is_1
            versionstamp::s1_9_s1_19_of_sixteen_first_users_each_has_a_version_of_its_own
            versionstamp::s1_10_who_has_reserved_keeps_other_writers_waiting_until_the_commit
            versionstamp::s1_11_a_stamp_is_ten_bytes_of_version_and_two_of_user_version
            versionstamp::s1_12_s1_35_mutations_are_numbered_from_zero_and_the_entry_has_zero
            versionstamp::s1_13_the_order_of_stamps_is_the_order_of_commits
            versionstamp::s1_13_a_transaction_with_an_older_snapshot_is_refused_or_in_order
            versionstamp::s1_13_who_waits_under_a_stricter_isolation_gets_a_conflict_or_the_next_version
            versionstamp::s1_14_a_rollback_gives_the_version_back
            versionstamp::s1_15_s1_16_s1_17_s1_18_each_database_has_a_strategy_of_its_own
            versionstamp::s1_17_a_unit_of_work_has_the_right_to_write_before_it_reads
            versionstamp::s1_18_s1_19_an_older_insert_id_of_the_connection_does_not_disturb

            table::s1_20_s1_28_s1_29_an_entry_has_these_columns_and_no_others
            table::s1_20_an_entry_has_an_id_of_its_own
            table::s1_21_s1_26_s1_27_stamps_and_ids_of_units_of_work_are_unique_and_indexed
            table::s1_22_an_entry_has_the_id_of_its_unit_of_work
            table::s1_23_s1_24_payload_and_references_are_json
            table::s1_25_an_entry_has_the_databases_time

            payload::s1_30_an_entry_says_what_the_tables_hold
            payload::s1_30_s1_31_s1_32_s1_33_mutations_have_the_form_of_version_1
            payload::s1_34_mutations_are_in_the_order_in_which_they_were_recorded
            payload::s1_36_checks_are_not_told
            payload::s1_37_internal_tables_are_written_and_not_told_of
            payload::s1_37_postriders_own_tables_are_not_told_of
            payload::s1_28_s1_38_each_mutation_has_the_namespace_of_its_schema
            payload::s1_42_names_are_those_that_users_see
            payload::s1_43_65536_mutations_have_stamps
            payload::s1_43_one_mutation_more_is_refused_before_any_sql
            payload::s1_43_a_unit_of_work_of_65536_mutations_is_committed
            payload::s1_47_what_cannot_be_written_is_refused_before_any_sql

            values::s1_40_s1_41_the_payload_says_what_the_table_holds
            values::s1_40_s1_41_values_arrive_as_they_were_given
            values::s1_41_the_payload_is_superjson_and_references_are_plain_json
            values::s1_40_numbers_that_are_not_finite_are_refused_where_they_cannot_be_stored
            values::s1_40_defaults_and_the_databases_time_are_told
            values::s1_40_a_value_becomes_null
            values::s1_40_s1_47_a_time_that_a_database_cannot_hold_is_refused

            flow::s1_44_rows_and_entry_are_committed_together
            flow::s1_44_a_caller_who_rolls_back_leaves_nothing
            flow::s1_45_an_older_version_is_a_conflict_and_nothing_is_written
            flow::s1_45_of_two_checked_updates_at_once_one_is_a_conflict
            flow::s1_45_a_check_holds_until_the_commit
            flow::s1_45_a_row_that_is_not_there_fails_the_unit_of_work
            flow::s1_45_a_constraint_fails_the_unit_of_work
            flow::s1_45_an_error_leaves_connections_that_can_be_used
            flow::s1_22_a_unit_of_work_is_committed_once
            flow::s1_22_of_two_units_of_work_with_one_id_one_is_committed
            flow::s1_22_ids_of_units_of_work_are_the_same_only_if_every_character_is
            flow::s1_39_ids_that_were_created_are_answered

            retrieval::s1_48_entries_are_listed_in_their_order
            retrieval::s1_48_a_page_has_a_limit
            retrieval::s1_49_only_entries_strictly_after_a_stamp_are_listed
            retrieval::s1_51_reading_changes_nothing
            retrieval::s1_49_who_follows_sees_every_entry_once
            retrieval::s1_51_a_cursor_of_another_database_is_refused
            retrieval::s1_51_a_cursor_from_after_a_restored_backup_is_refused
            retrieval::s1_48_the_newest_entry_is_the_head
            retrieval::s1_48_an_entry_is_read_as_it_was_written

            references::s1_39_s1_52_an_external_id_is_told_as_it_is
            references::s1_53_s1_54_an_internal_id_becomes_a_placeholder
            references::s1_55_internal_ids_are_nowhere_in_an_entry
            references::s1_56_a_row_of_the_same_unit_of_work_is_found
            references::s1_57_a_reference_to_nothing_fails_the_unit_of_work
            references::s1_52_a_reference_may_be_null

            identifiers::s1_42_odd_names_work_and_inject_nothing
            identifiers::s1_42_names_that_no_database_has_are_refused

            migration::s1_46_without_the_tables_a_unit_of_work_fails_and_nothing_is_written
            migration::s1_46_without_the_table_of_entries_the_rows_are_rolled_back
            migration::s1_58_the_tables_come_with_version_5_of_the_schema
            migration::s1_59_who_does_not_switch_it_on_notices_nothing

            consumers::s1_51_a_named_consumer_goes_on_where_it_was
            consumers::s1_51_one_process_at_a_time_has_the_lease
            consumers::s1_51_another_process_takes_over_when_the_lease_has_ended
            consumers::s1_51_a_lease_ends_by_itself
            consumers::s1_51_a_lease_is_renewed
            consumers::s1_51_a_lease_is_kept_while_its_position_is_being_committed
            consumers::s1_51_a_consumer_does_not_go_back
            misuse::s1_13_a_reservation_that_was_undone_is_not_used
            misuse::s1_45_a_unit_of_work_that_fails_leaves_the_callers_transaction_as_it_was
            misuse::s1_13_a_counter_that_went_back_is_not_taken_for_a_repeat
            misuse::s1_39_ids_are_told_as_the_table_holds_them
            misuse::s1_45_what_the_database_says_of_a_value_is_not_passed_on
            misuse::s1_45_rows_that_were_created_have_their_last_version
            consumers::s1_51_a_place_is_committed_with_the_consumers_own_effect
            consumers::s1_51_a_consumer_is_reset_and_forgotten
            consumers::s1_51_operators_see_who_is_held_back
            consumers::s1_51_a_new_consumer_begins_where_it_is_told
            consumers::s1_51_a_consumer_waits_for_new_entries
            consumers::s1_51_names_and_times_of_consumers_are_checked
            consumers::s1_51_a_consumer_whose_entry_was_lost_is_told_so

            own::s1_41_an_own_entry_may_hold_everything_that_superjson_has
            own::s1_14_s1_44_an_own_entry_is_rolled_back_with_its_transaction
            own::s1_5_an_own_entry_is_not_written_while_it_is_off
            own::s1_22_s1_47_an_own_entry_says_something_under_an_id_of_its_own
        }
    };
    ($scene:ty: $($module:ident::$promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $promise() {
                $crate::suite::$module::$promise::<$scene>().await;
            }
        )*
    };
}
