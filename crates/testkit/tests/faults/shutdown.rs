//! SIGTERM.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use testkit::within;

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::{Scene, scale};

const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn r27_rolling_restarts_under_load_lose_nothing_repeat_nothing_and_spend_no_attempt() -> Result<()> {
    let scene = Scene::new().await?;
    let settings = Settings { lease_ms: 60_000, delay_ms: 10, grace_ms: 30_000, ..Settings::default() };
    scene.enqueue("backlog", 1_500).await?;
    let load = Load::start(&scene, 2, Duration::from_millis(2)).await?;
    let mut relays = try_join_all((0..3).map(|_| Relay::start(&scene, &settings))).await?;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 * scale() {
        scene.more_arrivals(30).await?;
        relays.push(Relay::start(&scene, &settings).await?);
        let stopped = relays.remove(0).terminate().await?;
        ensure!(stopped.code == Some(0) && stopped.abandoned == 0 && stopped.lease_lost == 0, "{stopped:?}");
        ensure!(stopped.took < Duration::from_millis(settings.grace_ms), "{stopped:?}");
        slowest = slowest.max(stopped.took);
    }
    let told = load.stop().await?;
    scene.finished(SOON * 2).await?;
    for relay in relays {
        ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    println!("r27: the slowest shutdown took {slowest:?}");
    let spent = scene.count("select count(*) from outbox_messages where attempts <> 1").await?;
    ensure!(spent == 0, "{spent} messages took more than one attempt");
    let mut bounds = settings.bounds(0);
    bounds.told = told.committed;
    scene.check(bounds).await?;
    Ok(())
}

#[tokio::test]
async fn r28_a_hung_sink_is_abandoned_at_the_end_of_the_grace_and_its_rows_recover_by_lease() -> Result<()> {
    let scene = Scene::new().await?;
    let hanging = Settings { concurrency: 4, grace_ms: 1_000, sink: "hang", ..Settings::default() };
    scene.enqueue("stuck", 20).await?;
    let relay = Relay::start(&scene, &hanging).await?;
    within(SOON, "four publishes", || async { relay.printed("began") == 4 }).await?;
    let stopped = relay.terminate().await?;
    ensure!(stopped.code == Some(4) && stopped.abandoned == 4, "{stopped:?}");
    ensure!(stopped.took >= Duration::from_millis(900) && stopped.took < SOON, "{stopped:?}");
    let untouched = "select count(*) from outbox_messages where status = 'pending' and attempts = 0";
    ensure!(scene.count(untouched).await? == 16, "what had not begun was not given back");
    let healthy = Settings { sink: "record", lease_ms: 30_000, ..hanging };
    let relay = Relay::start(&scene, &healthy).await?;
    scene.finished(SOON).await?;
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    ensure!(scene.count("select count(*) from outbox_messages where attempts = 2").await? == 4);
    let report = scene.check(healthy.bounds(0)).await?;
    println!("r28: shut down after {:?}, {} reclaimed", stopped.took, report.reclaims);
    Ok(())
}
