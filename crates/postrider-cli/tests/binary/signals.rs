//! Stopping: gracefully, at the end of patience, and at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use testkit::{Signal, within};

use super::support::{PATIENCE, Receiver, Relay, Site, config};

#[tokio::test]
async fn r27_sigterm_under_load_gives_back_what_has_not_started() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        receiver.answer(200, Duration::from_millis(20));
        let file = site.file("postrider.toml", &config(&site.url, &receiver.url, "lease = \"60s\""))?;
        let lines: String = (0..3_000).map(|n| format!("{n}\n")).collect();
        site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
        for _ in 0..3 {
            let mut relay = Relay::with_config(&file).await?;
            let before = receiver.arrivals().len();
            within(PATIENCE, "some load", || async { receiver.arrivals().len() > before + 100 }).await?;
            assert_eq!(relay.stop().await?, 0, "{}", relay.log());
            assert_eq!(site.count("processing").await?, 0, "nothing waits for a lease");
        }
        let arrivals = receiver.arrivals().clone();
        let mut ids: Vec<&str> = arrivals.iter().map(|arrival| arrival.header("ce-id")).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), arrivals.len(), "no duplicates when the sink answers");
        assert_eq!(site.count("delivered").await?, i64::try_from(ids.len())?);
        assert!(arrivals.iter().all(|arrival| arrival.header("ce-attempt") == "1"), "no attempt was spent");
    }
    Ok(())
}

#[tokio::test]
async fn r28_sigterm_with_a_hung_sink_ends_at_the_end_of_the_grace_with_a_code() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_secs(600));
    let text = config(&site.url, &receiver.url, "lease = \"5s\"\npoll_interval = \"200ms\"")
        + "[relay]\nshutdown_grace = \"2s\"\n";
    let file = site.file("postrider.toml", &text)?;
    let id = site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?.out;
    let mut relay = Relay::with_config(&file).await?;
    receiver.until(1).await?;
    let told = Instant::now();
    assert_eq!(relay.stop().await?, 3, "{}", relay.log());
    assert!(told.elapsed() >= Duration::from_secs(2), "{:?}", told.elapsed());
    assert!(relay.log().contains("stopped with publishes under way"), "{}", relay.log());
    assert_eq!(site.count("processing").await?, 1);

    receiver.answer(200, Duration::ZERO);
    let mut relay = Relay::with_config(&file).await?;
    let delivered = || async { site.count("delivered").await.is_ok_and(|rows| rows == 1) };
    within(PATIENCE, "the lease's end", delivered).await.with_context(|| relay.log())?;
    let arrivals = receiver.arrivals().clone();
    assert!(arrivals.iter().all(|arrival| arrival.header("ce-id") == id.trim()));
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_at_once() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_secs(600));
    let text = config(&site.url, &receiver.url, "") + "[relay]\nshutdown_grace = \"10m\"\n";
    let file = site.file("postrider.toml", &text)?;
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let mut relay = Relay::with_config(&file).await?;
    receiver.until(1).await?;
    relay.signal(Signal::SIGTERM)?;
    within(PATIENCE, "the first signal", || async { relay.log().contains("stopping") }).await?;
    relay.signal(Signal::SIGINT)?;
    // Long before the end of the grace.
    assert_eq!(relay.ended(PATIENCE).await?, 130, "{}", relay.log());
    Ok(())
}
