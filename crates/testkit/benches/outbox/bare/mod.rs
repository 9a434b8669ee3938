//! The bare SQL that Postrider is measured against: no dispatch, no retry, no fence beyond the status. Each file has
//! the same: `create` a table, `fill` it, `drain` it.

pub mod mysql;
pub mod postgres;
pub mod sqlite;

/// How many rows a statement takes.
pub const BATCH: usize = 1_000;

/// So many placeholders with commas between.
fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
