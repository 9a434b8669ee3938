//! A worker that cannot renew its leases.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use postrider::DispatcherBuilder;
use testkit::{Mode, Postgres, Proxy, within};

use super::inside::{Inside, LEASE, bounds};
use super::scene::Scene;

const MAX_ROWS: usize = 100;
const RUNS: usize = 5;
const SOON: Duration = Duration::from_secs(120);
/// The dispatcher keeps a tenth of a lease, 200 ms, as its margin; half of that is left to the scheduler of a busy machine.
const LATEST_START: Duration = LEASE.saturating_sub(Duration::from_millis(100));

#[tokio::test]
async fn r18_a_worker_that_cannot_renew_starts_no_publish_after_its_trust_is_over() -> Result<()> {
    // at different points of the keeper's round, because it may hang in a statement when the trust ends
    try_join_all([3, 9, 15, 21].map(is_idle_after)).await?;
    Ok(())
}

/// The margin is too short for a machine that stands still between a look at the clock and the publish: one undisturbed
/// run of several will do. Without trust publishes begin too late in every run.
async fn is_idle_after(arrivals: i64) -> Result<()> {
    let mut seen = Vec::new();
    while seen.len() < RUNS {
        let (late, meanwhile) = cut_off_after(arrivals).await?;
        if late == 0 && meanwhile > 0 {
            return Ok(());
        }
        seen.push((late, meanwhile));
    }
    bail!("publishes began when their trust was over, or none after the cut: {seen:?}")
}

/// How many publishes began too late, and how many in time after the cut.
async fn cut_off_after(arrivals: i64) -> Result<(i64, i64)> {
    let scene = Scene::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], Postgres::shared().await?.port()).into()).await?;
    scene.enqueue("cut-off", 150).await?;
    let url = scene.database.url_via(proxy.port());
    let adapt = |builder: DispatcherBuilder| builder.concurrency(2).batch_size(50).max_rows(MAX_ROWS);
    let relay = Inside::start(&scene, &url, LEASE / 20, adapt).await?;
    scene.more_arrivals(arrivals).await?;
    proxy.set(Mode::Blackhole);
    let cut: String = sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&scene.pool).await?;
    let living = "select count(*) from outbox_messages where status = 'processing' and locked_until > now()";
    within(SOON, "an end of its leases", || async { scene.count(living).await.is_ok_and(|rows| rows == 0) }).await?;
    let claimed = scene.count("select count(*) from changes where became = 'processing'").await?;
    let started = scene.arrivals().await?;
    ensure!(started < claimed, "all {claimed} claimed rows were published in spite of the cut");
    recover(&proxy).await?;
    scene.finished(SOON).await?;
    let (ended, _) = relay.stop().await?;
    ensure!(ended.abandoned == 0, "{ended:?}");
    scene.check(bounds(MAX_ROWS as i64)).await?;
    let late = scene.count(&late()).await?;
    let meanwhile = scene.count(&format!("select count(*) from arrivals where begun_at > '{cut}'")).await?;
    println!("r18: {started} of {claimed} claimed rows published, {late} of them late, the rest left alone");
    Ok((late, meanwhile))
}

/// The network comes back and tells that the old connections are gone.
async fn recover(proxy: &Proxy) -> Result<()> {
    proxy.set(Mode::Reset);
    within(SOON, "an end of the dead connections", || async { proxy.connections() == 0 }).await?;
    proxy.set(Mode::Pass);
    Ok(())
}

/// Counts publishes that began too late. A row that was given back and claimed again has the same attempt in both
/// claims: the later one counts.
fn late() -> String {
    format!(
        "select count(*) from arrivals where begun_at > {} * interval '1 millisecond' + ( \
           select max(at) from changes where became = 'processing' and changes.id = arrivals.id \
             and changes.attempts = arrivals.attempt and changes.at <= arrivals.begun_at)",
        LATEST_START.as_millis()
    )
}
