//! A worker that cannot renew its leases.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{Mode, Postgres, Proxy, within};

use super::inside::{Inside, LEASE, bounds};
use super::scene::Scene;

const SOON: Duration = Duration::from_secs(20);
/// The dispatcher keeps a tenth of a lease as its margin; half of that is left to the scheduler of a busy machine.
const LATEST_START: Duration = LEASE.saturating_sub(LEASE.checked_div(20).expect("20 is not 0"));

#[tokio::test]
async fn r18_a_worker_that_cannot_renew_starts_no_publish_after_its_trust_is_over() -> Result<()> {
    let scene = Scene::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], Postgres::shared().await?.port()).into()).await?;
    scene.enqueue("cut-off", 200).await?;
    let url = scene.database.url_via(proxy.port());
    let relay =
        Inside::start(&scene, &url, LEASE / 20, |builder| builder.concurrency(2).batch_size(50).max_rows(100)).await?;
    scene.more_arrivals(5).await?;
    proxy.set(Mode::Blackhole);
    let cut: String = sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&scene.pool).await?;
    let living = "select count(*) from outbox_messages where status = 'processing' and locked_until > now()";
    within(SOON, "an end of its leases", || async { scene.count(living).await.is_ok_and(|rows| rows == 0) }).await?;
    let claimed = scene.count("select count(*) from changes where became = 'processing'").await?;
    let started = scene.arrivals().await?;
    ensure!(started < claimed, "all {claimed} claimed rows were published in spite of the cut");
    proxy.set(Mode::Reset);
    within(SOON, "an end of the dead connections", || async { proxy.connections() == 0 }).await?;
    proxy.set(Mode::Pass);
    scene.finished(SOON).await?;
    let (ended, _) = relay.stop().await?;
    ensure!(ended.abandoned == 0, "{ended:?}");
    scene.check(bounds(100)).await?;
    // a row that was given back and claimed again has the same attempt in both claims: the later one counts
    let late = format!(
        "select count(*) from arrivals where begun_at > {} * interval '1 millisecond' + ( \
           select max(at) from changes where became = 'processing' and changes.id = arrivals.id \
             and changes.attempts = arrivals.attempt and changes.at <= arrivals.begun_at)",
        LATEST_START.as_millis()
    );
    ensure!(scene.count(&late).await? == 0, "publishes began when their trust was over");
    let meanwhile = scene.count(&format!("select count(*) from arrivals where begun_at > '{cut}'")).await?;
    ensure!(meanwhile > 0, "nothing was published after the cut, so the test showed nothing");
    println!("r18: {started} of {claimed} claimed rows published, the rest left alone");
    Ok(())
}
