//! A relay that runs out of file handles or memory: it sheds load or ends, and acknowledges nothing that it did not send.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testkit::relay::Relay;
use testkit::{Signal, within};
use tokio::process::Command;

use super::support::{self, PATIENCE, Receiver, Site, config};

/// So few that connections to the destination use them up.
const HANDLES: usize = 64;
const MESSAGES: usize = 1_000;
/// Far more requests at the same time than there are handles; many attempts, since each that finds no handle costs one.
const GREEDY: &str = "lease = \"5s\"\nconcurrency = 200\nbatch_size = 200\nmax_attempts = 1000";

/// How many bytes a relay may take beyond what it has, and how large messages are.
const ROOM: u64 = 16 * 1024 * 1024;
const LARGE: usize = 500_000;
const LARGE_MESSAGES: usize = 60;
/// Messages that wait for a destination which takes two at a time, when memory ends.
const SMALL_MESSAGES: usize = 100;

/// Starts a relay under limits of `prlimit`, which becomes the relay.
fn start(limits: &[String], file: &Path, requests: &str) -> Result<Relay> {
    let mut command = Command::new("prlimit");
    command.args(limits).arg("--").arg(env!("CARGO_BIN_EXE_postrider")).args(["run", "--config"]).arg(file);
    command.env_clear().env("PATH", std::env::var("PATH")?).env("POSTRIDER__SINK__HOOKS__CONCURRENCY", requests);
    // Memory that the allocator has reserved for each thread counts as taken, and would be used up first.
    command.env("MALLOC_ARENA_MAX", "1");
    command.env("POSTRIDER__LOG__FORMAT", "json").env("POSTRIDER__ADMIN__LISTEN", "127.0.0.1:0");
    Relay::start(command)
}

fn open_handles(relay: &Relay) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/fd", relay.pid()?))?.count())
}

/// The address space of a relay, in bytes.
fn address_space(relay: &Relay) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.pid()?))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).context("no VmSize")?;
    Ok(size.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// The ids that arrived, and how many rows are delivered: all of these are among those, whatever has happened.
async fn check(site: &Site, receiver: &Receiver) -> Result<(usize, usize)> {
    let delivered = site.source().await?.ids("select id::text from outbox_messages where status = 'delivered'").await?;
    let arrived: BTreeSet<String> =
        receiver.arrivals().iter().map(|arrival| arrival.header("ce-id").to_owned()).collect();
    let unsent: Vec<_> = delivered.iter().filter(|id| !arrived.contains(&id.to_string())).collect();
    ensure!(unsent.is_empty(), "acknowledged and never sent: {unsent:?}");
    Ok((arrived.len(), delivered.len()))
}

/// With a relay that has enough of everything all messages arrive.
async fn recovers(site: &Site, receiver: &Receiver, file: &Path, messages: usize) -> Result<()> {
    receiver.answer(200, Duration::ZERO);
    let mut relay = support::Relay::with_config(file).await?;
    let all = || async { site.count("delivered").await.is_ok_and(|rows| rows == messages as i64) };
    within(PATIENCE * 3, "all deliveries", all).await.with_context(|| relay.log())?;
    ensure!(relay.stop().await? == 0, "{}", relay.log());
    let counted = check(site, receiver).await?;
    ensure!(counted == (messages, messages), "arrived and delivered: {counted:?}");
    Ok(())
}

#[tokio::test]
async fn r30_without_file_handles_left_a_relay_sheds_load_and_nothing_is_lost() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_millis(300));
    let file = site.file("postrider.toml", &config(&site.url, &receiver.url, GREEDY))?;
    let lines: String = (0..MESSAGES).map(|n| format!("{n}\n")).collect();
    site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;

    let mut relay = start(&[format!("--nofile={HANDLES}:{HANDLES}")], &file, "200")?;
    let is_out = || async { open_handles(&relay).is_ok_and(|open| open >= HANDLES - 1) };
    within(PATIENCE, "no handles left", is_out).await.with_context(|| relay.log())?;
    // It goes on with what it has.
    within(PATIENCE * 2, "deliveries", || async { receiver.arrivals().len() > MESSAGES / 4 })
        .await
        .with_context(|| relay.log())?;
    check(&site, &receiver).await?;
    relay.signal(Signal::SIGKILL)?;
    relay.ended(PATIENCE).await?;
    check(&site, &receiver).await?;
    recovers(&site, &receiver, &file, MESSAGES).await
}

#[tokio::test]
async fn r30_without_memory_left_a_relay_ends_and_nothing_is_lost() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_millis(300));
    let file = site.file("postrider.toml", &config(&site.url, &receiver.url, GREEDY))?;
    let mut relay = start(&[], &file, "2")?;
    relay.until_it_delivers().await?;
    let limit = format!("--as={}", address_space(&relay)? + ROOM);
    let limited = Command::new("prlimit").args([&format!("--pid={}", relay.pid()?), &limit]).status().await?;
    ensure!(limited.success(), "prlimit failed");

    let small = "1\n".repeat(SMALL_MESSAGES);
    site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&small)).await?.succeeded()?;
    receiver.until(1).await?;
    let line = format!("\"{}\"\n", "x".repeat(LARGE));
    let lines = line.repeat(LARGE_MESSAGES);
    site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
    let code = relay.ended(PATIENCE * 2).await.with_context(|| relay.log())?;
    ensure!(code != 0 && relay.log().contains("memory allocation of"), "it ended with {code}:\n{}", relay.log());
    let (_, delivered) = check(&site, &receiver).await?;
    ensure!(delivered < SMALL_MESSAGES + LARGE_MESSAGES, "there was enough memory after all");
    recovers(&site, &receiver, &file, SMALL_MESSAGES + LARGE_MESSAGES).await
}
