//! A network between relay and database that swallows everything and comes back without a reset: connections that
//! were open stay silent for ever, and nobody but the relay's own time limits will tell.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{Mode, Postgres, Proxy, within};

use super::inside::{Inside, LEASE, bounds};
use super::scene::Scene;

const SOON: Duration = Duration::from_secs(120);
/// Longer than a statement may take, which is a third of a lease.
const DARK_FOR: Duration = LEASE;
const SLOW: Duration = Duration::from_millis(30);
const CUTS: usize = 3;
const CLOSED_WITHIN: Duration = Duration::from_secs(120);
const MAX_ROWS: usize = 40;

async fn proxy() -> Result<Proxy> {
    Proxy::start(([127, 0, 0, 1], Postgres::shared().await?.port()).into()).await
}

async fn start(scene: &Scene, proxy: &Proxy) -> Result<Inside> {
    let url = scene.database.url_via(proxy.port());
    let delay = Duration::from_millis(20);
    Inside::start(scene, &url, delay, |builder| builder.concurrency(4).batch_size(20).max_rows(MAX_ROWS)).await
}

/// Ends the run: everything is delivered, the dispatcher stops, its pool closes, and the checkers are content.
async fn conclude(scene: &Scene, relay: Inside, cuts: usize) -> Result<()> {
    scene.finished(SOON).await?;
    let (ended, pool) = relay.stop().await?;
    ensure!(ended.abandoned == 0, "{ended:?}");
    let closed = tokio::time::timeout(CLOSED_WITHIN, pool.close()).await;
    ensure!(closed.is_ok(), "the pool did not close within {CLOSED_WITHIN:?}");
    scene.check(bounds((cuts * MAX_ROWS) as i64)).await?;
    Ok(())
}

/// The network is slow before it fails, so that statements are under way when it does.
async fn busy_relay_survives(mode: Mode) -> Result<()> {
    let (scene, proxy) = (Scene::new().await?, proxy().await?);
    scene.enqueue("busy", 400).await?;
    let relay = start(&scene, &proxy).await?;
    for _ in 0..CUTS {
        proxy.set(Mode::Delay(SLOW));
        scene.more_arrivals(20).await?;
        proxy.set(mode);
        tokio::time::sleep(DARK_FOR).await;
        proxy.set(Mode::Pass);
        scene.more_arrivals(20).await?;
    }
    conclude(&scene, relay, CUTS).await
}

#[tokio::test]
async fn r35_a_busy_relay_recovers_from_a_black_hole() -> Result<()> {
    busy_relay_survives(Mode::Blackhole).await
}

#[tokio::test]
async fn r35_a_busy_relay_recovers_from_half_open_connections() -> Result<()> {
    busy_relay_survives(Mode::HalfOpen).await
}

#[tokio::test]
async fn r35_a_busy_relay_recovers_from_resets() -> Result<()> {
    busy_relay_survives(Mode::Reset).await
}

#[tokio::test]
async fn r35_a_sleeping_relay_whose_bell_rang_into_a_black_hole_wakes_up() -> Result<()> {
    let (scene, proxy) = (Scene::new().await?, proxy().await?);
    let relay = start(&scene, &proxy).await?;
    let asleep = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and granted \
                  and database = (select oid from pg_database where datname = current_database())";
    within(SOON, "an armed bell", || async { scene.count(asleep).await.is_ok_and(|locks| locks > 0) }).await?;
    proxy.set(Mode::Blackhole);
    scene.enqueue("unheard", 5).await?;
    tokio::time::sleep(LEASE).await;
    proxy.set(Mode::Pass);
    scene.finished(SOON).await?;
    scene.enqueue("later", 5).await?;
    conclude(&scene, relay, 1).await
}
