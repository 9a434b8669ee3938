//! What every layout keeps of the promises, and what it does not and why.

#[path = "conformance/debezium.rs"]
mod debezium;
#[path = "conformance/debezium_keep.rs"]
mod debezium_keep;
#[path = "conformance/modkit.rs"]
mod modkit;
#[path = "conformance/packfinderz.rs"]
mod packfinderz;
#[path = "conformance/talkie.rs"]
mod talkie;
#[path = "conformance/valinor.rs"]
mod valinor;

use crate::harness::Table;

/// What is listed as impossible is so because of an ability that the layout says it lacks.
#[test]
fn every_reason_is_one_that_the_layout_gives_itself() {
    fn check<T: Table>() {
        let layout = T::layout();
        for (ability, promises) in T::CANNOT {
            assert!(!layout.can(*ability), "{} can do {ability}: {promises:?}", layout.name);
        }
    }
    check::<modkit::Modkit>();
    check::<talkie::Talkie>();
    check::<packfinderz::Packfinderz>();
    check::<valinor::Valinor>();
    check::<debezium::Debezium>();
    check::<debezium_keep::DebeziumKeep>();
}
