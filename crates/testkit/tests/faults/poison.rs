//! A message that kills the process which publishes it.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::relay::{Relay, Settings};
use super::scene::Scene;

const NEIGHBOURS: usize = 300;
const ABORTED: i32 = 6;
/// What a supervisor waits before it starts a crashed process again.
const RESPAWN_AFTER: Duration = Duration::from_millis(100);

#[tokio::test]
async fn r21_a_poison_message_dies_alone_and_its_neighbours_are_delivered() -> Result<()> {
    let scene = Scene::new().await?;
    let settings = Settings { lease_ms: 1_000, max_attempts: 3, sink: "poison", delay_ms: 5, ..Settings::default() };
    scene.enqueue("before", NEIGHBOURS / 2).await?;
    let poison = scene.enqueue("poison", 1).await?[0];
    scene.enqueue("after", NEIGHBOURS / 2).await?;
    let mut crashes = 0;
    let survivor = loop {
        let mut relay = Relay::spawn(&scene, &settings)?;
        let crashed = tokio::select! {
            ended = relay.process.wait(Duration::from_secs(60)) => Some(ended?),
            finished = scene.finished(Duration::from_secs(120)) => finished.map(|()| None)?,
        };
        let Some(status) = crashed else { break relay };
        ensure!(status.signal() == Some(ABORTED), "{status}");
        crashes += 1;
        tokio::time::sleep(RESPAWN_AFTER).await;
    };
    ensure!(survivor.terminate().await?.code == Some(0), "it did not stop in good order");
    println!("r21: {crashes} crashes");
    ensure!(crashes == 3, "{crashes} crashes");
    let (status, attempts, error) = scene.row(poison).await?;
    ensure!(status == "dead" && attempts == 3 && error.is_some_and(|text| text.starts_with("delivery unknown")));
    let report = scene.check(settings.bounds(crashes)).await?;
    ensure!((report.messages, report.dead) == (NEIGHBOURS as i64 + 1, 1), "{report:?}");
    Ok(())
}
