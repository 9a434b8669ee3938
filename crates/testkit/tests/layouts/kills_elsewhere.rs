//! A relay is killed in the middle of its work on MariaDB and SQLite, for each way to claim that they have: every message arrives all the same. See
//! `kills.rs` for PostgreSQL.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::layout::{Layout, preset};
use postrider::store::Scope;
use postrider::{AnyStore, ClaimedMessage, Connect, Dispatcher, Message, PublishError, callback};
use tempfile::TempDir;
use testkit::{MariaDb, Signal, Worker, within};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// So many that none of the kills comes when all is done.
const MESSAGES: usize = 300;
const KILLS: usize = 3;
/// What a relay has in hand at most.
const IN_HAND: usize = 20;
const LEASE: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(120);

const URL: &str = "KILLED_URL";
const LAYOUT: &str = "KILLED_LAYOUT";
const ARRIVALS: &str = "KILLED_ARRIVALS";

fn layout(name: &str) -> Result<Layout> {
    Ok(Layout { lock_timeout: LEASE, ..preset(name)? })
}

async fn open(url: &str, name: &str) -> Result<AnyStore> {
    Ok(AnyStore::connect(url, &Connect { layout: layout(name)?, create: true, ..Connect::default() }).await?)
}

/// Not a test: a relay that writes down what arrives, until it is killed.
#[tokio::test]
#[ignore = "run by the tests of this file"]
async fn relay() -> Result<()> {
    let (Ok(url), Ok(name), Ok(arrivals)) = (std::env::var(URL), std::env::var(LAYOUT), std::env::var(ARRIVALS)) else {
        return Ok(());
    };
    std::thread::spawn(|| {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(5);
    });
    let store = open(&url, &name).await?;
    let sink = callback(move |message: ClaimedMessage| {
        let arrivals = arrivals.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(15)).await;
            arrive(&arrivals, message.id).map_err(|error| PublishError::retry(error.to_string()))
        }
    });
    let dispatcher = Dispatcher::builder_shared(store.store(), Arc::new(sink))
        .lease(LEASE)
        .poll_interval(Duration::from_millis(50))
        .concurrency(2)
        .batch_size(10)
        .max_rows(IN_HAND)
        .build()?;
    let (stop, mut terminated) = (CancellationToken::new(), signal(SignalKind::terminate())?);
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    println!("\nready");
    terminated.recv().await;
    stop.cancel();
    let _ended = running.await?;
    Ok(())
}

/// One line for each arrival, in one write: lines of a process that was killed are whole or not there.
fn arrive(file: &str, id: Uuid) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(format!("{id}\n").as_bytes())
}

fn arrived(file: &Path) -> Result<Vec<Uuid>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.parse().context("an id in each line")).collect()
}

async fn survives(url: &str, name: &str, messages: impl Fn() -> Message) -> Result<()> {
    let directory = TempDir::new()?;
    let file = directory.path().join("arrivals");
    let arrivals = file.to_str().context("a plain path")?;
    let store = open(url, name).await?;
    store.migrate().await?;
    let mut written = HashSet::new();
    for _ in 0..MESSAGES / 50 {
        let enqueued = store.enqueue((0..50).map(|_| messages()).collect()).await?;
        written.extend(enqueued.iter().map(postrider::Enqueued::id));
    }
    let program = std::env::current_exe()?;
    let relay = async || -> Result<Worker> {
        let arguments = ["--ignored", "--exact", "kills_elsewhere::relay", "--nocapture"];
        let relay = Worker::spawn(&program, &arguments, &[(URL, url), (LAYOUT, name), (ARRIVALS, arrivals)])?;
        relay.wait_for_line(|line| line == "ready", SOON).await?;
        Ok(relay)
    };
    let stats = async || store.store().stats(&Scope::all()).await;
    let mut left = Vec::new();
    for _ in 0..KILLS {
        let before = arrived(&file)?.len();
        let mut relay = relay().await?;
        within(SOON, "some arrivals", || async { arrived(&file).is_ok_and(|now| now.len() >= before + 8) }).await?;
        relay.signal(Signal::SIGKILL)?;
        relay.wait(SOON).await?;
        left.push(stats().await?.processing);
    }
    ensure!(left.iter().any(|rows| *rows > 0), "no kill hit a relay that had rows in its hands: {left:?}");
    let mut relay = relay().await?;
    let finished = || async { stats().await.is_ok_and(|stats| stats.pending + stats.processing == 0) };
    within(SOON, "an end of all messages", finished).await?;
    relay.signal(Signal::SIGTERM)?;
    ensure!(relay.wait(SOON).await?.code() == Some(0), "it did not stop in good order");
    let arrived = arrived(&file)?;
    ensure!(arrived.iter().copied().collect::<HashSet<_>>() == written, "{} of {MESSAGES} arrived", arrived.len());
    ensure!(arrived.len() <= MESSAGES + KILLS * IN_HAND, "{} arrivals of {MESSAGES} messages", arrived.len());
    Ok(())
}

async fn survives_on_mariadb(name: &str, messages: impl Fn() -> Message) -> Result<()> {
    let database = MariaDb::shared().await?.create_database().await?;
    survives(&database.url(), name, messages).await
}

async fn survives_on_sqlite(name: &str, messages: impl Fn() -> Message) -> Result<()> {
    let directory = TempDir::new()?;
    let url = format!("sqlite://{}", directory.path().join("outbox.db").display());
    survives(&url, name, messages).await
}

fn usage() -> Message {
    Message::json("chat", "usage", &7)
}

fn created() -> Message {
    Message::json("outbox", "chat.message.created", &7)
}

#[tokio::test]
async fn c6_a_relay_that_is_killed_loses_nothing_with_leases_on_mariadb() -> Result<()> {
    survives_on_mariadb("modkit", usage).await
}

#[tokio::test]
async fn c6_s2_27_a_relay_that_is_killed_loses_nothing_with_lock_time_outs_on_mariadb() -> Result<()> {
    survives_on_mariadb("talkie", created).await
}

#[tokio::test]
async fn c6_a_relay_that_is_killed_loses_nothing_with_leases_on_sqlite() -> Result<()> {
    survives_on_sqlite("modkit", usage).await
}

#[tokio::test]
async fn c6_s2_27_a_relay_that_is_killed_loses_nothing_with_lock_time_outs_on_sqlite() -> Result<()> {
    survives_on_sqlite("talkie", created).await
}
