//! All connections cut, over and over.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::Postgres;
use tokio::time::{MissedTickBehavior, interval};

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::{Scene, scale};

const CUT_EVERY: Duration = Duration::from_millis(200);
/// After so many cuts something must have arrived.
const ROUND: usize = 10;
/// So many cuts without an arrival are a standstill, on any machine.
const MOST_CUTS: usize = 200;
const PRODUCERS: usize = 2;
/// Two relays with five connections each, the producers, and the scene; and as many again that were cut and are still
/// counted, because the server has not come to end them.
const MOST_CONNECTIONS: i64 = 2 * (2 * 5 + PRODUCERS as i64 + 4);

#[tokio::test]
async fn r34_work_goes_on_while_all_connections_are_cut_every_200_ms() -> Result<()> {
    let server = Postgres::shared().await?;
    let (scene, cuts) = (Scene::new().await?, 50 * scale());
    let settings = Settings { batch: 8, max_rows: 16, delay_ms: 15, ..Settings::default() };
    scene.enqueue("backlog", 8_000 * scale()).await?;
    let relays = [Relay::start(&scene, &settings).await?, Relay::start(&scene, &settings).await?];
    let load = Load::start(&scene, PRODUCERS, Duration::from_millis(4)).await?;
    let (mut clock, mut most, mut cuts_made) = (interval(CUT_EVERY), 0, 0);
    // A machine that is late must not be cut in bursts.
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..cuts / ROUND {
        let (arrived, mut cut) = (scene.arrivals().await?, 0);
        // The cuts go on until something arrives, and on a busy machine that may take some more of them.
        while cut < ROUND || scene.arrivals().await? == arrived {
            ensure!(cut < MOST_CUTS, "no progress in {cut} cuts");
            clock.tick().await;
            most = most.max(connections(server, &scene).await?);
            server.terminate_backends(scene.database.name()).await?;
            cut += 1;
        }
        cuts_made += cut;
    }
    let told = load.stop().await?;
    ensure!(most <= MOST_CONNECTIONS, "{most} connections");
    scene.finished(Duration::from_secs(120)).await?;
    let refused: usize = relays.iter().map(|relay| relay.printed("lease lost")).sum();
    for relay in relays {
        ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    println!("r34: at most {most} connections, {refused} settles said twice");
    let mut bounds = settings.bounds(2 * cuts_made);
    bounds.told = told.committed;
    scene.check(bounds).await?;
    Ok(())
}

async fn connections(server: &Postgres, scene: &Scene) -> Result<i64> {
    let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server.url("postgres")).await?;
    let sql = "select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'";
    Ok(sqlx::query_scalar(sql).bind(scene.database.name()).fetch_one(&mut admin).await?)
}
