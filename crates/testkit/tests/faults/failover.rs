//! A primary that is lost, and an asynchronous standby that lagged behind it and takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use postrider::{Names, PostgresStore};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use testkit::{Postgres, within};
use uuid::Uuid;

use super::relay::{Relay, Settings};
use super::scene::{Scene, message};

const SOON: Duration = Duration::from_secs(60);

/// How often each message arrived.
async fn arrivals(record: &PgPool) -> Result<BTreeMap<Uuid, i64>> {
    let rows: Vec<(Uuid, i64)> =
        sqlx::query_as("select id, count(*) from arrivals group by id").fetch_all(record).await?;
    Ok(rows.into_iter().collect())
}

async fn ids_of(pool: &PgPool, status: &str) -> Result<BTreeSet<Uuid>> {
    let ids =
        sqlx::query_scalar("select id from outbox_messages where status = $1").bind(status).fetch_all(pool).await?;
    Ok(ids.into_iter().collect())
}

/// Runs a relay until so many rows are delivered, and stops it in good order.
async fn deliver(scene: &Scene, settings: &Settings, rows: i64) -> Result<()> {
    let relay = Relay::start(scene, settings).await?;
    within(SOON, "deliveries", || async { scene.delivered().await.is_ok_and(|now| now == rows) }).await?;
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    Ok(())
}

#[tokio::test]
async fn r44_after_a_failover_to_a_lagging_standby_what_was_acked_since_is_sent_again_with_its_id() -> Result<()> {
    let primary = Postgres::start().await?;
    let (scene, settings) = (Scene::on(&primary).await?, Settings::default());
    let standby = primary.standby().await?;
    let early = scene.enqueue("early", 50).await?;
    deliver(&scene, &settings, 50).await?;
    let waiting = scene.enqueue("waiting", 30).await?;
    standby.caught_up_with(&primary).await?;

    // From here on only the primary knows.
    standby.stop_receiving().await?;
    let lost = scene.enqueue("lost", 20).await?;
    deliver(&scene, &settings, 100).await?;
    primary.kill_hard().await?;

    let record = scene.record.pool_with(|options| options.max_connections(2)).await?;
    let once = arrivals(&record).await?;
    ensure!(once.len() == 100 && once.values().all(|times| *times == 1), "before the failover each arrives once");

    // A relay may be there before the standby takes over: it can change nothing, and goes on once it can.
    let url = scene.database.url_via(standby.port());
    let pool = PgPoolOptions::new().max_connections(2).connect(&url).await?;
    let relay = Relay::spawn_at(&url, &scene.record.url(), &settings)?;
    relay.process.wait_for_line(|line| line == "ready", SOON).await?;
    ensure!(ids_of(&pool, "pending").await? == waiting.iter().copied().collect(), "the standby has what waited");
    ensure!(arrivals(&record).await? == once, "nothing is sent without a claim");
    standby.promote().await?;
    let is_done = || async { ids_of(&pool, "delivered").await.is_ok_and(|ids| ids.len() == 80) };
    within(SOON, "deliveries after the failover", is_done).await?;

    let times = arrivals(&record).await?;
    let arrived = |ids: &[Uuid]| ids.iter().map(|id| times.get(id).copied().unwrap_or(0)).collect::<BTreeSet<_>>();
    ensure!(times.len() == 100, "no id is new: {}", times.len());
    ensure!(arrived(&waiting) == [2].into(), "what was acked after the standby's position comes again: {times:?}");
    ensure!(arrived(&early) == [1].into(), "what was acked before it does not");
    ensure!(arrived(&lost) == [1].into(), "what was enqueued after it cannot come again");
    let kept: BTreeSet<Uuid> = ids_of(&pool, "delivered").await?;
    ensure!(kept == early.iter().chain(&waiting).copied().collect(), "and is gone from the database");

    // The new primary is an outbox like any other.
    let mut transaction = pool.begin().await?;
    let new = PostgresStore::new(pool.clone(), Names::default()).outbox();
    let new = new.enqueue(&mut transaction, message("new", 1)).await?.id();
    transaction.commit().await?;
    let has_come = || async { arrivals(&record).await.is_ok_and(|times| times.get(&new) == Some(&1)) };
    within(SOON, "a new message", has_come).await?;
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    Ok(())
}
