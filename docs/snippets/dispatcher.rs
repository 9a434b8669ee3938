//! The examples of `docs/guides/dispatcher.md`, `docs/guides/fairness.md` and `docs/operations/recover.md`.

use std::time::Duration;

use postrider::operate::{Change, Filter};
use postrider::store::Delivered;
use postrider::{
    ClaimedMessage, ConfigError, Dispatcher, Names, Operator, Outcome, PostgresStore, PublishError, Scope, Sink,
    TenantLimit, TenantLimits, callback,
};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn configured(store: PostgresStore, sink: impl Sink) -> Result<Dispatcher, ConfigError> {
    Dispatcher::builder(store, sink)
        .name("shop")
        .scope(Scope::namespace("shop"))
        .concurrency(16)
        .max_attempts(20)
        .backoff(Duration::from_secs(1), Duration::from_secs(300))
        .delivered(Delivered::Delete)
        .purge_delivered_after(Duration::from_secs(7 * 24 * 3600))
        .build()
}

fn limited(large: Uuid) -> TenantLimits {
    TenantLimits::each(TenantLimit::none().rate(100).burst(200).in_flight(8))
        .tenant(large, TenantLimit::none().rate(500))
}

async fn until_ctrl_c(dispatcher: Dispatcher) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    let ended = running.await?;
    println!("{} publishes were cut off", ended.abandoned);
    Ok(())
}

async fn send(_message: &ClaimedMessage) -> Result<u16, std::io::Error> {
    Ok(200)
}

fn closure() -> impl Sink {
    callback(|message: ClaimedMessage| async move {
        match send(&message).await {
            Ok(200..=299) => Ok(()),
            Ok(429) => Err(PublishError::retry_after(Duration::from_secs(30), "too many requests")),
            Ok(400) => Err(PublishError::reject("the receiver does not understand it")),
            Ok(status) => Err(PublishError::retry(format!("status {status}"))),
            Err(error) => Err(PublishError::unknown(error.to_string())),
        }
    })
}

struct Batches;

#[async_trait::async_trait]
impl Sink for Batches {
    fn max_batch(&self) -> usize {
        100
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        batch.iter().map(|_| Outcome::Accepted).collect()
    }
}

async fn behind_pgbouncer(options: PgConnectOptions) -> Result<PostgresStore, sqlx::Error> {
    let options = options.statement_cache_capacity(0).extra_float_digits(None);
    let pool = PgPoolOptions::new().connect_with(options).await?;
    Ok(PostgresStore::new(pool, Names::default()).behind_pooler(true))
}

async fn replay(pool: PgPool) -> anyhow::Result<()> {
    let store = PostgresStore::new(pool, Names::default());
    let filter = Filter { topic: Some("order.placed".into()), ..Filter::default() };
    let change = Change { who: "ann@example.org".into(), filter, limit: 100 };
    let replayed = store.replay(&change).await?;
    println!("{} messages are pending again", replayed.len());
    Ok(())
}
