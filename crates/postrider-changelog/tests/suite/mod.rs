//! What a changelog promises, on every database, by the ids of the first seed's requirements.

pub mod enablement;
pub mod payload;

/// Makes one test per promise for a scene.
#[macro_export]
macro_rules! changelog_promises {
    ($scene:ty) => {
        $crate::changelog_promises! { $scene:
            enablement::s1_1_2_3_it_is_off_until_the_application_switches_it_on
            enablement::s1_4_the_tables_are_there_whether_it_is_on_or_not
            enablement::s1_5_50_while_it_is_off_nothing_is_written_and_the_list_is_empty
            enablement::s1_5_50_what_was_written_is_listed_after_it_is_switched_off_again
            enablement::s1_6_a_unit_of_work_leaves_one_entry_however_many_rows_it_changes
            enablement::s1_7_entries_are_kept_whatever_the_store_purges

            payload::s1_30_an_entry_says_what_the_tables_hold
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
