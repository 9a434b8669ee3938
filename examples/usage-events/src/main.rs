//! A chat service with a quota, and billing that hears of every turn. Read `chat.rs` first, then `billing.rs`.
//!
//! `cargo run -p usage-events` starts a private PostgreSQL, shows each of the outbox's criteria, and ends with 0 only if all
//! hold.

mod billing;
mod chat;
mod criteria;
#[cfg(test)]
mod tests;
mod world;

use std::time::Duration;

use anyhow::{Result, bail};
use postrider::{Dispatcher, Layout, PostgresStore, PublishError, callback};
use sqlx::PgPool;
use testkit::show::Proof;

use crate::world::World;

/// Makes this program one that dies while it publishes; the demonstration starts itself so.
const DIES: &str = "--die-while-publishing";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demonstrate().await,
        [DIES, url] => die(url).await,
        _ => bail!("usage: usage-events, without arguments"),
    }
}

async fn demonstrate() -> Result<()> {
    println!("Starting a private PostgreSQL …\n");
    let server = testkit::Postgres::start().await?;
    let world = World::open(&server).await?;
    let mut proof = Proof::default();
    proof.tell("a turn that ends has exactly one event, committed with it", criteria::one_row_or_none(&world).await);
    proof.tell("who loses a race is told that the event is there already", criteria::losers_are_told(&world).await);
    proof.tell("several dispatchers never have the same event", criteria::dispatchers_share(&world).await);
    proof.tell("events of a dispatcher that crashed are claimed again", criteria::a_crash_is_outlived(&world).await);
    proof.tell(
        "failures are tried again later and later, with their error",
        criteria::retries_come_later_and_later(&world).await,
    );
    proof.tell("an event that comes again does no harm", criteria::twice_is_billed_once(&world).await);
    proof.end()
}

/// Claims, and ends in the middle of publishing as if its machine had lost power. Its lease is short, so that nobody waits long.
async fn die(url: &str) -> Result<()> {
    let store = PostgresStore::with_layout(PgPool::connect(url).await?, Layout::modkit())?;
    let sink = callback(|_| async { std::process::abort() as Result<(), PublishError> });
    let dispatcher =
        Dispatcher::builder(store, sink).lease(Duration::from_secs(1)).poll_interval(Duration::from_millis(100));
    let ended = dispatcher.build()?.run(Default::default()).await;
    bail!("it should have died: {ended:?}")
}
