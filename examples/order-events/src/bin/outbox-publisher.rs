//! The worker: publishes until it is told to stop.
//!
//! `DATABASE_URL`, `PACKFINDERZ_PUBSUB_PROJECT` and, for an emulator, `PUBSUB_EMULATOR_HOST` say from where and whereto;
//! `PACKFINDERZ_OUTBOX_…` how (see `settings.rs`); `PACKFINDERZ_OUTBOX_LISTEN` where `/readyz` is, 127.0.0.1:8081 otherwise.
//! The table and the topic are there already, or come later: until then `/readyz` says that it is not ready.

use std::time::Duration;

use anyhow::{Context, Result};
use order_events::publisher::Publisher;
use order_events::settings::Settings;
use postrider::sinks::PubsubConfig;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let settings = Settings::from_env()?;
    let needed = |name: &str| std::env::var(name).with_context(|| format!("set {name}"));
    let mut pubsub = PubsubConfig::default();
    pubsub.project = needed("PACKFINDERZ_PUBSUB_PROJECT")?;
    // The database may come later than we do.
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(3));
    let pool = options.connect_lazy(&needed("DATABASE_URL")?).context("DATABASE_URL is no address of a database")?;
    let publisher = Publisher::new(pool, &pubsub, settings)?;

    let listen = std::env::var("PACKFINDERZ_OUTBOX_LISTEN").unwrap_or_else(|_| "127.0.0.1:8081".into());
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("http://{}/readyz", listener.local_addr()?);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    publisher.serve(listener, stopped).await
}
