//! A shop that tells of every order, in one file and without a server. Read `shop.rs` first, then `relay.rs`.
//!
//! `postrider demo` places orders, each with its message in the same transaction, while a relay delivers the
//! messages to the terminal through a line that fails now and then. At the end it proves from the database and from
//! what the terminal got that every committed order was delivered, and no other.

mod progress;
mod proof;
mod relay;
mod shop;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use postrider::{SqliteStore, Store};
use tokio_util::sync::CancellationToken;

use self::progress::Progress;
use self::relay::Terminal;
use self::shop::Shop;

/// How long the relay may take for what is left when the shop has closed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Only the demo makes this table, so that no other database is ever taken for one of its own.
const MARK: &str = "CREATE TABLE postrider_demo_may_delete_this_file (note text)";

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many orders to place.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub orders: u32,
    /// Where the database goes; the file of an earlier run is begun anew.
    #[arg(long, value_name = "PATH", default_value = "postrider-demo.db")]
    pub file: PathBuf,
    /// Do not print every message.
    #[arg(long, short)]
    pub quiet: bool,
}

pub async fn run(options: &Options) -> Result<()> {
    begin_anew(options)?;
    let store = SqliteStore::open(&options.file).await.context("cannot open the database")?;
    sqlx::query(MARK).execute(store.pool()).await.context("cannot mark the database as a demo")?;
    store.migrate().await.context("cannot migrate the outbox")?;
    let shop = Shop::open(store.pool().clone(), store.outbox()).await?;
    println!("A shop in {}: {} orders, one in ten is called off.\n", options.file.display(), options.orders);

    let started = Instant::now();
    let terminal = Arc::new(Terminal::default());
    let progress = Progress::new(options.orders, options.quiet);
    let stop = CancellationToken::new();
    let dispatcher = relay::dispatcher(store.clone(), terminal.clone(), progress.clone())?;
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let watching = tokio::spawn(progress.clone().watch(store.clone(), shop.clone(), terminal.clone(), stop.clone()));

    shop.place(options.orders).await?;
    let all_told = tokio::time::timeout(PATIENCE, until_all_are_told(&store)).await;
    stop.cancel();
    let ended = running.await?;
    watching.await?;
    all_told.with_context(|| format!("messages are left after {PATIENCE:?}"))??;
    anyhow::ensure!(ended.abandoned == 0, "{} publishes were cut off", ended.abandoned);

    proof::of(&shop, &terminal).await?.print(started.elapsed());
    proof::say_how_to_look(&options.file);
    // Folds the write-ahead log into the file, so that one file is all there is.
    store.pool().close().await;
    Ok(())
}

/// Waits until no message waits or runs.
async fn until_all_are_told(store: &SqliteStore) -> Result<()> {
    loop {
        let stats = store.stats(&postrider::store::Scope::all()).await?;
        if stats.pending + stats.processing == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Removes what an earlier run left, and nothing else.
fn begin_anew(options: &Options) -> Result<()> {
    let part = |suffix: &str| {
        let mut file = options.file.clone().into_os_string();
        file.push(suffix);
        PathBuf::from(file)
    };
    let database = match std::fs::read(&options.file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.with_context(|| format!("cannot read {}", options.file.display()))?,
    };
    // What a run that was cut off wrote last is in the write-ahead log.
    let log = std::fs::read(part("-wal")).unwrap_or_default();
    let is_marked = [&database, &log].iter().any(|bytes| contains(bytes, MARK.as_bytes()));
    if !database.starts_with(b"SQLite format 3\0") || !is_marked {
        bail!("{} is no database of an earlier run; name another file", options.file.display());
    }
    for suffix in ["", "-wal", "-shm"] {
        match std::fs::remove_file(part(suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", part(suffix).display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
