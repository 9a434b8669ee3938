//! Faults against real servers and real relay processes; every test ends with the checkers.
//!
//! Sizes are small for CI. `POSTRIDER_TEST_SCALE` multiplies messages and cycles: 50 makes r19 a million messages.

#![allow(missing_docs)]

mod faults {
    mod blackhole;
    mod blips;
    mod checkers;
    mod conflicts;
    mod crashes;
    mod everywhere;
    mod failover;
    mod failpoints;
    mod frozen;
    mod inside;
    mod load;
    mod mariadb_restarts;
    mod no_faults;
    mod open_transaction;
    mod own_rows;
    mod poison;
    mod relay;
    mod restarts;
    mod scene;
    mod shutdown;
    mod terminated;
    mod trust;
}
