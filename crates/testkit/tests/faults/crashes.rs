//! A row whose worker dies on every attempt.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::within;

use super::relay::{Relay, Settings};
use super::scene::Scene;

const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn r20_a_row_whose_last_allowed_attempt_died_with_the_process_becomes_dead_by_the_sweep() -> Result<()> {
    let scene = Scene::new().await?;
    let hanging = Settings { lease_ms: 1_000, max_attempts: 3, sink: "hang", ..Settings::default() };
    let id = scene.enqueue("doomed", 1).await?[0];
    for attempt in 1..=hanging.max_attempts {
        let relay = Relay::start(&scene, &hanging).await?;
        relay.process.wait_for_line(|line| line == format!("began {id}"), SOON).await?;
        relay.kill().await?;
        let (status, attempts, _) = scene.row(id).await?;
        ensure!((status.as_str(), attempts) == ("processing", attempt), "{status} after {attempts}");
    }
    let healthy = Settings { sink: "record", lease_ms: 12_000, ..hanging };
    let relay = Relay::start(&scene, &healthy).await?;
    let is_dead = || async { scene.row(id).await.is_ok_and(|(status, ..)| status == "dead") };
    within(SOON, "its death", is_dead).await?;
    let (_, attempts, error) = scene.row(id).await?;
    ensure!(attempts == 3 && error.as_deref().is_some_and(|text| text.starts_with("delivery unknown")), "{error:?}");
    scene.enqueue("next", 1).await?;
    scene.finished(SOON).await?;
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    let report = scene.check(healthy.bounds(0)).await?;
    ensure!((report.messages, report.dead) == (2, 1), "{report:?}");
    Ok(())
}
