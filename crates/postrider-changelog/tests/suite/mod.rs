//! What a changelog promises, on every database, by the ids of the first seed's requirements.

pub mod payload;

/// Makes one test per promise for a scene.
#[macro_export]
macro_rules! changelog_promises {
    ($scene:ty) => {
        $crate::changelog_promises! { $scene:
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
