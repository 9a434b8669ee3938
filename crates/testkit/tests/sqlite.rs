//! What is particular to SQLite: settings, processes on one file (r47), the clock, waking up, plans, and its drivers.
//!
//! Sizes are small for CI. `POSTRIDER_TEST_SCALE` multiplies messages and kills.

mod sqlite {
    mod adapters;
    mod clock;
    mod commit_unknown;
    mod delivery;
    mod full;
    mod plans;
    mod processes;
    pub mod scene;
    mod schema;
    mod settings;
    mod wake;
}
