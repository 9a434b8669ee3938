//! A database server that crashes and comes back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::{Postgres, within};

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::{Scene, scale};

/// Two seconds are usual; the rest is for a busy machine.
const RESUMED_WITHIN: Duration = Duration::from_secs(60);
const DOWN_FOR: Duration = Duration::from_secs(1);

#[tokio::test]
async fn r33_relays_resume_after_the_server_crashed_and_nothing_committed_is_lost() -> Result<()> {
    let server = Postgres::builder().durable().start().await?;
    let (scene, cycles) = (Scene::on(&server).await?, 3 * scale());
    let settings = Settings { delay_ms: 10, ..Settings::default() };
    scene.enqueue("backlog", 2_000 * scale()).await?;
    let relays = [Relay::start(&scene, &settings).await?, Relay::start(&scene, &settings).await?];
    let load = Load::start(&scene, 4, Duration::from_millis(2)).await?;
    let mut slowest = Duration::ZERO;
    for cycle in 0..cycles {
        scene.more_arrivals(400).await?;
        if cycle % 2 == 0 {
            server.kill_hard().await?
        } else {
            server.stop_immediate().await?
        };
        tokio::time::sleep(DOWN_FOR).await;
        server.restart().await?;
        let ready = Instant::now();
        let before = scene.delivered().await?;
        let goes_on = || async { scene.delivered().await.is_ok_and(|now| now > before) };
        within(RESUMED_WITHIN, "a delivery after the restart", goes_on).await?;
        slowest = slowest.max(ready.elapsed());
    }
    let told = load.stop().await?;
    ensure!(told.errors > 0, "the producers did not notice that the server was down");
    scene.finished(Duration::from_secs(120)).await?;
    for relay in relays {
        ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    println!("r33: the slowest resumption took {slowest:?}");
    let mut bounds = settings.bounds(2 * cycles);
    bounds.told = told.committed;
    scene.check(bounds).await?;
    Ok(())
}
