//! All connections cut, over and over.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::Postgres;
use tokio::time::{MissedTickBehavior, interval};

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::{Scene, scale};

const CUT_EVERY: Duration = Duration::from_millis(200);
const PRODUCERS: usize = 2;
/// Two relays with five connections each, the producers, and the scene.
const MOST_CONNECTIONS: i64 = 2 * 5 + PRODUCERS as i64 + 4;

#[tokio::test]
async fn r34_work_goes_on_while_all_connections_are_cut_every_200_ms() -> Result<()> {
    let server = Postgres::shared().await?;
    let (scene, cuts) = (Scene::new().await?, 50 * scale());
    let settings = Settings { batch: 8, max_rows: 16, delay_ms: 15, ..Settings::default() };
    scene.enqueue("backlog", 8_000 * scale()).await?;
    let relays = [Relay::start(&scene, &settings).await?, Relay::start(&scene, &settings).await?];
    let load = Load::start(&scene, PRODUCERS, Duration::from_millis(4)).await?;
    let (mut clock, mut most, mut standstills) = (interval(CUT_EVERY), 0, 0);
    // A machine that is late must not be cut in bursts.
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut arrived = scene.arrivals().await?;
    for cut in 1..=cuts {
        clock.tick().await;
        most = most.max(connections(server, &scene).await?);
        server.terminate_backends(scene.database.name()).await?;
        if cut % 10 == 0 {
            let now = scene.arrivals().await?;
            standstills += usize::from(now == arrived);
            arrived = now;
        }
    }
    let told = load.stop().await?;
    ensure!(standstills == 0, "no progress for two seconds, {standstills} times");
    ensure!(most <= MOST_CONNECTIONS, "{most} connections");
    scene.finished(Duration::from_secs(30)).await?;
    let refused: usize = relays.iter().map(|relay| relay.printed("lease lost")).sum();
    for relay in relays {
        ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    println!("r34: at most {most} connections, {refused} settles said twice");
    let mut bounds = settings.bounds(2 * cuts);
    bounds.told = told.committed;
    scene.check(bounds).await?;
    Ok(())
}

async fn connections(server: &Postgres, scene: &Scene) -> Result<i64> {
    let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server.url("postgres")).await?;
    let sql = "select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'";
    Ok(sqlx::query_scalar(sql).bind(scene.database.name()).fetch_one(&mut admin).await?)
}
