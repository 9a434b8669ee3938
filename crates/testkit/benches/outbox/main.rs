//! How fast Postrider is on PostgreSQL, as ratios to bare SQL on the same private server in the same run.
//!
//! `cargo bench -p testkit --bench outbox [-- drain|enqueue|latency]`; the server is durable (fsync on).

mod bare;
mod drain;
mod enqueue;
mod latency;

use anyhow::Result;
use sqlx::PgPool;
use testkit::Postgres;

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

/// Lets the server finish what earlier work left to do, so that it does not fall into the next measurement.
pub async fn settle_down(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql("vacuum analyze").execute(pool).await?;
    sqlx::raw_sql("checkpoint").execute(pool).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let server =
        Postgres::builder().durable().setting("shared_buffers", "1GB").setting("max_wal_size", "8GB").start().await?;
    if runs("drain") {
        drain::run(&server).await?;
    }
    if runs("enqueue") {
        enqueue::run(&server).await?;
    }
    if runs("latency") {
        latency::run(&server).await?;
    }
    Ok(())
}
