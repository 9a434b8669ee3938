//! The program as it is deployed: webhooks, and the worker beside them. It runs until it is told to stop.
//!
//! `valinor [channels.toml]` reads that file and `VALINOR_CHANNELS_…` (see `settings.rs`). `DATABASE_URL` is the application's
//! role, `VALINOR_RELAY_DATABASE_URL` the relay's; `VALINOR_LISTEN` says where webhooks are taken, 127.0.0.1:8080 otherwise. The
//! tables are there already (see `schema.rs`). The adapter is the one that sends nothing, as in the first steps of a rollout.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use channel_replies::program::Program;
use channel_replies::settings::Settings;
use postrider::sinks::provider::{Adapter, NoopAdapter, NoopConfig};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    ensure!(arguments.len() <= 1, "usage: valinor [channels.toml]");
    let settings = Settings::load(arguments.first().map(PathBuf::as_path))?;
    let listen = std::env::var("VALINOR_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listen: SocketAddr =
        listen.parse().with_context(|| format!("VALINOR_LISTEN is {listen:?}; give an address"))?;
    let (app, relay) = (pool("DATABASE_URL")?, pool("VALINOR_RELAY_DATABASE_URL")?);
    let stub: Arc<dyn Adapter> = Arc::new(NoopAdapter::new(&NoopConfig::default()));
    let mut program = Program::start(app, relay, [("whatsapp".into(), stub)], listen, &settings).await?;
    match program.address {
        Some(address) => println!("http://{address}/webhooks/whatsapp"),
        None => println!("channels are off"),
    }

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        failed = program.failed() => return failed,
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    program.stop().await
}

/// The database may come later than we do.
fn pool(variable: &str) -> Result<PgPool> {
    let url = std::env::var(variable).with_context(|| format!("set {variable}"))?;
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(3));
    options.connect_lazy(&url).with_context(|| format!("{variable} is no address of a database"))
}
