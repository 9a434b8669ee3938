//! SIGHUP: a good configuration takes over, a bad one changes nothing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Signal, undisturbed, within};

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
        let goes_on = || async { relay.log().matches("\"delivering\"").count() == 2 };
        within(PATIENCE, "the new dispatcher", goes_on).await.with_context(|| relay.log())?;
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

/// Two databases in one relay, one of which has a receiver that does not answer.
async fn two_sources() -> Result<(Site, Site, Receiver, Receiver, String)> {
    let (quick, slow) = (Site::sqlite().await?.migrated().await?, Site::postgres().await?.migrated().await?);
    let (answers, hangs) = (Receiver::start().await?, Receiver::start().await?);
    hangs.answer(200, Duration::from_secs(7));
    let text = format!(
        "[relay]\nshutdown_grace = \"10s\"\n[source.quick]\nurl = \"{}\"\n[source.slow]\nurl = \"{}\"\n\
         [sink.hooks]\ntype = \"http\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
         [[route]]\nsource = \"quick\"\nsink = \"hooks\"\ndestination = \"{}/\"\n\
         [[route]]\nsource = \"slow\"\nsink = \"hooks\"\ndestination = \"{}/\"\n",
        quick.url, slow.url, answers.url, hangs.url
    );
    Ok((quick, slow, answers, hangs, text))
}

#[tokio::test]
async fn a_reload_does_not_let_one_source_wait_for_another_ones_publishes() -> Result<()> {
    undisturbed(Duration::from_secs(15), one_source_hangs).await
}

async fn one_source_hangs() -> Result<()> {
    let (quick, slow, answers, hangs, text) = two_sources().await?;
    let mut relay = Relay::with_config(&quick.file("postrider.toml", &text)?).await?;
    slow.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    hangs.until(1).await.with_context(|| relay.log())?;
    relay.signal(Signal::SIGHUP)?;
    logged(&relay, "the new configuration is in force").await?;
    let told = std::time::Instant::now();
    quick.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    answers.until(1).await.with_context(|| relay.log())?;
    assert!(told.elapsed() < Duration::from_secs(4), "{:?}", told.elapsed());
    let delivered = || async { slow.count("delivered").await.is_ok_and(|rows| rows == 1) };
    within(PATIENCE, "the slow one", delivered).await.with_context(|| relay.log())?;
    assert_eq!(hangs.arrivals().len(), 1, "once");
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_stop_during_a_reload_is_heard_and_a_second_one_ends_at_once() -> Result<()> {
    undisturbed(Duration::from_secs(10), stopped_twice).await
}

async fn stopped_twice() -> Result<()> {
    let (quick, slow, _answers, hangs, text) = two_sources().await?;
    let mut relay = Relay::with_config(&quick.file("postrider.toml", &text)?).await?;
    slow.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    hangs.until(1).await.with_context(|| relay.log())?;
    relay.signal(Signal::SIGHUP)?;
    relay.signal(Signal::SIGTERM)?;
    logged(&relay, "stopping").await?;
    relay.signal(Signal::SIGTERM)?;
    let told = std::time::Instant::now();
    assert_eq!(relay.ended(PATIENCE).await?, 143, "{}", relay.log());
    assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_source_that_was_down_before_does_not_forbid_a_reload() -> Result<()> {
    let (quick, slow, answers, _hangs, text) = two_sources().await?;
    let server = testkit::Postgres::shared().await?;
    let database = testkit::Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    database.set(testkit::Mode::Reset);
    let text = text.replace(&format!(":{}/", server.port()), &format!(":{}/", database.port()));
    let mut relay = Relay::with_config(&quick.file("postrider.toml", &text)?).await?;
    assert!(relay.log().contains("does not answer yet"), "{}", relay.log());
    relay.signal(Signal::SIGHUP)?;
    logged(&relay, "the new configuration is in force").await?;
    quick.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    answers.until(1).await.with_context(|| relay.log())?;
    let moved = text
        .replace(&slow.url, "postgres://u:canary@127.0.0.1:1/elsewhere")
        .replace("[source.slow]", "[source.slower]");
    quick.file("postrider.toml", &moved.replace("source = \"slow\"", "source = \"slower\""))?;
    relay.signal(Signal::SIGHUP)?;
    logged(&relay, "the reload is refused").await?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn s2_25_s0_80_an_interval_changes_with_a_reload_and_not_before() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let with = |interval: &str| {
        config(&site.url, &receiver.url, "").replace("[source.shop]", &format!("[source.shop]\n{interval}"))
    };
    let slow = with("poll_interval = \"1m\"\nlease = \"5m\"\nbatch_size = 7");
    let file = site.file("postrider.toml", &slow)?;
    let mut relay = Relay::with_config(&file).await?;
    // A plain insert rings for nobody, so only the interval finds it.
    let pool = sqlx::PgPool::connect(&site.url).await?;
    let insert = || sqlx::query("insert into outbox_messages (namespace, topic, payload) values ('n', 't', '1')");
    within(PATIENCE, "its first look", || async { relay.get("/readyz").await.is_ok_and(|(code, _)| code == 200) })
        .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    insert().execute(&pool).await?;
    site.file("postrider.toml", &with("poll_interval = \"100ms\"\nlease = \"5m\"\nbatch_size = 70"))?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(receiver.arrivals().is_empty(), "what runs keeps its settings, whatever the file says");
    relay.signal(Signal::SIGHUP)?;
    logged(&relay, "the new configuration is in force").await?;
    receiver.until(1).await?;
    insert().execute(&pool).await?;
    receiver.until(2).await?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}
