//! A small shop that never loses a message about an order. Read `orders.rs` first.
//!
//! `cargo run -p order-service` shows what happens; with `--serve` it serves until Ctrl-C. The database is a private
//! PostgreSQL that ends with the program, or the one that `DATABASE_URL` names.

mod delivery;
mod demo;
mod orders;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use postrider::{Names, PostgresStore};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

const USAGE: &str = "usage: order-service [--demo | --serve]
  --demo   place a few orders, show what is delivered, and stop (the default)
  --serve  serve until Ctrl-C
environment: DATABASE_URL (a private PostgreSQL otherwise), PORT (8080 or a free one otherwise), RUST_LOG";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let serve = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--demo"] => false,
        ["--serve"] => true,
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let listener = listen().await?;
    let address = listener.local_addr()?;
    let (pool, _private_server) = connect().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await.context("cannot migrate the outbox")?;
    orders::prepare(&pool).await.context("cannot make the shop's tables")?;

    // One token stops both: the server finishes its requests, the dispatcher what it has begun.
    let stop = CancellationToken::new();
    let world = delivery::World::new();
    let dispatcher = tokio::spawn(delivery::dispatcher(store.clone(), world.clone())?.run(stop.clone()));
    let router = orders::router(pool.clone(), store.outbox());
    let server = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());

    println!("Serving on http://{address}. To place an order:");
    println!(r#"  curl -X POST http://{address}/orders -d '{{"item":"lamp","quantity":2}}'"#);
    let outcome = match serve {
        true => interrupted().await,
        false => tokio::select! {
            outcome = demo::run(address, &pool, &world) => outcome,
            outcome = interrupted() => outcome,
        },
    };
    stop.cancel();
    server.await??;
    let ended = dispatcher.await?;
    pool.close().await;
    println!("Stopped; {} deliveries were cut off.", ended.abandoned);
    outcome
}

/// The database that `DATABASE_URL` names, or a private one that lives as long as the second value.
async fn connect() -> Result<(PgPool, Option<testkit::Postgres>)> {
    if let Ok(url) = std::env::var("DATABASE_URL") {
        let pool = PgPool::connect(&url).await.context("cannot connect to the database that DATABASE_URL names")?;
        return Ok((pool, None));
    }
    println!("Starting a private PostgreSQL …");
    let server = testkit::Postgres::start().await?;
    Ok((server.create_database().await?.pool().await?, Some(server)))
}

async fn listen() -> Result<TcpListener> {
    if let Ok(port) = std::env::var("PORT") {
        let port = port.parse().context("PORT is not a port number")?;
        return TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.context("cannot listen on PORT");
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on any port"),
    }
}

/// Waits for Ctrl-C, or for the signal that asks a service to stop.
async fn interrupted() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
