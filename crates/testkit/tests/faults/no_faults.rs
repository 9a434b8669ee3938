//! Several processes and no faults.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use super::relay::{Relay, Settings};
use super::scene::{Scene, scale};

#[tokio::test]
async fn r19_several_processes_without_faults_deliver_each_message_once() -> Result<()> {
    let (scene, messages) = (Scene::new().await?, 20_000 * scale());
    let settings = Settings {
        lease_ms: 60_000,
        dispatchers: 3,
        concurrency: 32,
        batch: 100,
        max_rows: 400,
        ..Settings::default()
    };
    scene.enqueue("many", messages).await?;
    let started = Instant::now();
    let relays = try_join_all((0..3).map(|_| Relay::start(&scene, &settings))).await?;
    scene.finished(Duration::from_secs(240 * scale() as u64)).await?;
    println!("r19: {:.0} messages/s", messages as f64 / started.elapsed().as_secs_f64());
    for relay in relays {
        let stopped = relay.terminate().await?;
        ensure!(stopped.code == Some(0) && stopped.lease_lost == 0, "{stopped:?}");
    }
    let report = scene.check(settings.bounds(0)).await?;
    ensure!(report.messages == messages as i64 && report.dead == 0 && report.reclaims == 0, "{report:?}");
    ensure!(scene.count("select count(distinct worker) from arrivals").await? > 3, "one process did it all");
    Ok(())
}
