//! Workers that are frozen past their leases and come back.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{Signal, within};

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::{Chance, Scene, scale};

const CYCLES: usize = 10;
const SLACK: Duration = Duration::from_secs(60);
/// How long after its end a lease was taken over, at worst, in milliseconds.
const LAG: &str = "select coalesce(max(extract(epoch from decided_at - locked_until_was)) * 1000, 0)::bigint from changes \
                   where was = 'processing' and became = 'processing'";
/// Two polls and a sweep interval are 700 ms; the rest is for a busy machine.
const LATEST: i64 = 20_000;

fn settings() -> Settings {
    Settings { lease_ms: 1_000, batch: 8, max_rows: 16, delay_ms: 5, ..Settings::default() }
}

/// Freezes a relay, and thaws it when every lease it held has ended and `over` says so.
async fn freeze_until(scene: &Scene, relay: &Relay, settings: &Settings, over: &str) -> Result<()> {
    relay.process.signal(Signal::SIGSTOP)?;
    let stopped: String = sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&scene.pool).await?;
    let sql = format!(
        "select count(*) from (select 1) as once where clock_timestamp() > '{stopped}'::timestamptz \
         + {} * interval '1 millisecond' and not exists (select from outbox_messages \
         where status = 'processing' and locked_by = '{}' and {over})",
        settings.lease_ms,
        relay.worker()?
    );
    within(settings.lease() + SLACK, "an end of its leases", || async {
        scene.count(&sql).await.is_ok_and(|met| met == 1)
    })
    .await?;
    relay.process.signal(Signal::SIGCONT)
}

#[tokio::test]
async fn r15_r11_what_a_frozen_worker_held_is_finished_by_others_and_its_late_settles_are_refused() -> Result<()> {
    let (scene, settings, cycles) = (Scene::new().await?, settings(), CYCLES * scale());
    let relays = [Relay::start(&scene, &settings).await?, Relay::start(&scene, &settings).await?];
    let load = Load::start(&scene, 2, Duration::from_millis(2)).await?;
    let mut chance = Chance(15);
    for _ in 0..cycles {
        scene.more_arrivals(chance.below(200) as i64).await?;
        let frozen = &relays[chance.below(2) as usize];
        freeze_until(&scene, frozen, &settings, "true").await?;
    }
    let told = load.stop().await?;
    scene.finished(SLACK * 2).await?;
    let mut refused = 0;
    for relay in relays {
        let stopped = relay.terminate().await?;
        ensure!(stopped.code == Some(0), "{stopped:?}");
        refused += stopped.lease_lost;
    }
    println!("r15: {refused} late settles refused");
    ensure!(scene.count(LAG).await? < LATEST, "a row waited too long for its next worker");
    let mut bounds = settings.bounds(cycles);
    bounds.told = told.committed;
    let report = scene.check(bounds).await?;
    ensure!(report.reclaims > 0 && refused > 0, "no freeze hit a worker that held something: {report:?}");
    Ok(())
}

/// Publishes outlast the freeze, and there is room to claim and publish the same rows again: when the worker thaws it
/// either renews its leases in time or claims its own rows anew, and then its first attempts end.
#[tokio::test]
async fn r12_a_lone_worker_frozen_past_its_lease_comes_back_to_its_own_rows() -> Result<()> {
    let (scene, cycles) = (Scene::new().await?, 3 * scale());
    let settings = Settings { delay_ms: 1_600, concurrency: 64, batch: 16, max_rows: 64, ..settings() };
    let relay = Relay::start(&scene, &settings).await?;
    for _ in 0..cycles {
        scene.enqueue("own", 4).await?;
        let held = "select count(*) from outbox_messages where status = 'processing'";
        within(SLACK, "its claims", || async { scene.count(held).await.is_ok_and(|held| held >= 4) }).await?;
        freeze_until(&scene, &relay, &settings, "locked_until >= clock_timestamp()").await?;
        scene.finished(SLACK * 2).await?;
    }
    let stopped = relay.terminate().await?;
    println!("r12: {} late settles refused", stopped.lease_lost);
    scene.check(settings.bounds(cycles)).await?;
    Ok(())
}
