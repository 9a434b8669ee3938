//! Short outages: a dispatcher carries on by itself, and leaves nothing behind when it ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::Postgres;

use super::inside::{Inside, bounds};
use super::scene::Scene;

const SOON: Duration = Duration::from_secs(120);
const CLOSED_WITHIN: Duration = Duration::from_secs(120);

#[tokio::test]
async fn r34_a_dispatcher_carries_on_after_a_blip_and_its_pool_can_be_closed() -> Result<()> {
    let (server, scene) = (Postgres::shared().await?, Scene::new().await?);
    let url = scene.database.url();
    let relay = Inside::start(&scene, &url, Duration::from_millis(2), |builder| builder.batch_size(20)).await?;
    for _ in 0..3 {
        // once while it works, once while it sleeps
        let before = scene.arrivals().await?;
        scene.enqueue("blip", 100).await?;
        let some = || async { scene.arrivals().await.is_ok_and(|now| now >= before + 10) };
        testkit::within(SOON, "some arrivals", some).await?;
        server.terminate_backends(scene.database.name()).await?;
        scene.finished(SOON).await?;
        server.terminate_backends(scene.database.name()).await?;
    }
    scene.enqueue("after", 1).await?;
    scene.finished(SOON).await?;
    let (ended, pool) = relay.stop().await?;
    ensure!(ended.abandoned == 0, "{ended:?}");
    let closed = tokio::time::timeout(CLOSED_WITHIN, pool.close()).await;
    ensure!(closed.is_ok(), "the pool did not close within {CLOSED_WITHIN:?}");
    let left = "select count(*) from pg_stat_activity where datname = current_database() and application_name like '________-%'";
    testkit::within(SOON, "an end of its connections", || async {
        scene.count(left).await.is_ok_and(|left| left == 0)
    })
    .await?;
    scene.check(bounds(3 * 80)).await?;
    Ok(())
}
