//! How fast the changelog and the sinks are, on durable private servers. What the outbox itself does is measured by
//! `postrider bench`.
//!
//! `cargo bench -p testkit --bench outbox [-- changelog postgres|mysql|sqlite]`; the databases are durable (fsync on).
//! `-- sinks [kafka|pubsub|nats|amqp|redis|sqs|sns]` measures the sinks, on PostgreSQL.

mod changelog;
mod sinks;
mod subject;

use anyhow::Result;
use testkit::{MariaDb, Postgres};

use crate::subject::Files;

/// The payload of every message: 200 bytes of JSON.
pub fn payload() -> serde_json::Value {
    let pad = "x".repeat(200 - r#"{"order":1234567,"pad":""}"#.len());
    serde_json::json!({ "order": 1_234_567, "pad": pad })
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let named = |group: &[&str], name: &str| {
        let of_group: Vec<&String> = wanted.iter().filter(|word| group.contains(&word.as_str())).collect();
        of_group.is_empty() || of_group.iter().any(|word| *word == name)
    };
    let on = |name: &str| named(&["postgres", "mysql", "sqlite"], name);
    let runs = |name: &str| named(&["changelog", "sinks"], name);
    if on("postgres") {
        let server = Postgres::builder()
            .durable()
            .setting("shared_buffers", "1GB")
            .setting("max_wal_size", "8GB")
            .start()
            .await?;
        if runs("sinks") {
            sinks::run(&server, |name| named(&sinks::NAMES, name)).await?;
        }
        if runs("changelog") {
            changelog::run(&server).await?;
        }
    }
    if on("mysql") && runs("changelog") {
        let server = MariaDb::builder()
            .durable()
            .setting("innodb_buffer_pool_size", "1G")
            .setting("innodb_log_file_size", "1G")
            .start()
            .await?;
        changelog::run(&server).await?;
    }
    if on("sqlite") && runs("changelog") {
        changelog::run(&Files::new()?).await?;
    }
    Ok(())
}
