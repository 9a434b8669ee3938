//! SIGHUP: a good configuration takes over, a bad one changes nothing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Signal, within};

use super::support::{PATIENCE, Receiver, Relay, Site, config};

async fn logged(relay: &Relay, text: &str) -> Result<()> {
    within(PATIENCE, text, || async { relay.log().contains(text) }).await.with_context(|| relay.log())
}

#[tokio::test]
async fn c20_a_good_configuration_takes_over_and_nothing_is_lost_or_doubled() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let (old, new) = (Receiver::start().await?, Receiver::start().await?);
        old.answer(200, Duration::from_millis(10));
        let file = site.file("postrider.toml", &config(&site.url, &old.url, ""))?;
        let lines: String = (0..2_000).map(|n| format!("{n}\n")).collect();
        site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
        let mut relay = Relay::with_config(&file).await?;
        old.until(100).await?;
        site.file("postrider.toml", &config(&site.url, &new.url, ""))?;
        relay.signal(Signal::SIGHUP)?;
        logged(&relay, "the new configuration is in force").await?;
        let at_the_old = old.arrivals().len();
        let all = || async { site.count("delivered").await.is_ok_and(|rows| rows == 2_000) };
        within(PATIENCE, "all deliveries", all).await.with_context(|| relay.log())?;
        assert_eq!(old.arrivals().len(), at_the_old, "the old destination gets nothing any more");
        assert_eq!(at_the_old + new.arrivals().len(), 2_000, "each message once");
        assert!(relay.get("/metrics").await?.1.contains("postrider_reloads_total{result=\"done\"} 1"));
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn c20_a_bad_configuration_changes_nothing() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let good = config(&site.url, &receiver.url, "");
    let file = site.file("postrider.toml", &good)?;
    let mut relay = Relay::with_config(&file).await?;
    let elsewhere = good.replace(&site.url, "postgres://nobody:canary@127.0.0.1:1/none");
    for (at, bad) in [
        "[source.shop".to_owned(),
        good.replace("retry_base", "retry_bass"),
        good.replace("\"100ms\"", "\"100\""),
        good.replace("sink = \"hooks\"", "sink = \"hoox\""),
        elsewhere,
    ]
    .iter()
    .enumerate()
    {
        site.file("postrider.toml", bad)?;
        relay.signal(Signal::SIGHUP)?;
        let refused = || async { relay.log().matches("the reload is refused").count() == at + 1 };
        within(PATIENCE, "the refusal", refused).await.with_context(|| relay.log())?;
        site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
        receiver.until(at + 1).await.with_context(|| relay.log())?;
    }
    assert!(!relay.log().contains("canary"), "{}", relay.log());
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}
