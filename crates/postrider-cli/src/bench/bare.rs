//! The bare SQL that Postrider is measured against: no dispatch, no retry, no fence beyond the status. Each file has the same:
//! what `create`s the table, what `fill`s it, an `insert` for clients, and a loop that claims and acks.

pub mod mysql;
pub mod postgres;
pub mod sqlite;

use anyhow::Result;
use async_trait::async_trait;

/// The table that has nothing but what the loop needs.
pub const TABLE: &str = "bare";

/// A loop on a connection of its own. Payloads go no further than to their numbers: what a loop without a sink does with them.
#[async_trait]
pub trait Loop: Send {
    /// Claims the next batch; the numbers of its messages.
    async fn claim(&mut self) -> Result<Vec<u32>>;

    /// Acks what was claimed last.
    async fn ack(&mut self) -> Result<()>;
}

/// A row that the loop got holds what it was filled with.
fn number(payload: &str) -> Result<u32> {
    super::letter::number(payload.as_bytes())
        .ok_or_else(|| anyhow::anyhow!("a row of the benchmark has another payload"))
}

/// So many placeholders with commas between.
fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
