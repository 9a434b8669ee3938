//! r25: the relay dies at every point of a message's way, on every database.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use testkit::crash::Point;

use super::everywhere::{Everywhere, On};
use super::relay::{Relay, Settings};
use super::scene::scale;

const SOON: Duration = Duration::from_secs(120);
const SIGABRT: i32 = 6;

fn settings(point: Point) -> Settings {
    let nacks = matches!(point, Point::BeforeNack | Point::AfterNack);
    // A lease is renewed only while a publish takes long.
    let slow = matches!(point, Point::BeforeExtend | Point::AfterExtend);
    Settings {
        lease_ms: 3_000,
        batch: 8,
        max_rows: 16,
        sink: if nacks { "flaky" } else { "record" },
        delay_ms: if slow { 900 } else { 0 },
        ..Settings::default()
    }
}

/// Lets a relay die at a point, has another one finish the work, and checks that nothing is lost.
async fn die_at(on: On, point: Point, times: usize) -> Result<usize> {
    let place = Everywhere::new(on).await?;
    let healthy = settings(point);
    if point == Point::InPurge {
        // The first purge comes at the start, so something must be finished by then.
        place.commit(20).await?;
        work_off(&place, &healthy).await?;
    }
    place.commit(40).await?;
    let dying = Settings { crash_at: Some(format!("{point:?}:{times}")), ..healthy.clone() };
    let mut relay = Relay::spawn_at(&place.url, &place.record.url(), &dying)?;
    let status = relay.process.wait(SOON).await.with_context(|| format!("{point:?} was not passed {times} times"))?;
    ensure!(status.signal() == Some(SIGABRT), "{point:?}: it ended with {status}");
    place.commit(10).await?;
    work_off(&place, &healthy).await.with_context(|| format!("{point:?}"))?;
    let found = place.check(healthy.max_rows).await.with_context(|| format!("{on:?}, {point:?}, {times}"))?;
    let rows = place.source.count("select count(*) from outbox_messages").await?;
    let expected = if point == Point::InPurge { (70, 60) } else { (50, 50) };
    ensure!((found.messages, rows) == expected, "{point:?}: {found:?}, {rows} rows");
    Ok(found.duplicates)
}

/// Has a relay deliver everything. Its own leases are long: it repeats nothing because the machine stands still.
async fn work_off(place: &Everywhere, settings: &Settings) -> Result<()> {
    let settings = Settings { lease_ms: 30_000, ..settings.clone() };
    let relay = Relay::spawn_at(&place.url, &place.record.url(), &settings)?;
    place.finished(SOON).await?;
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    Ok(())
}

async fn die_everywhere(on: On) -> Result<()> {
    let repeats = 2 * scale();
    let mut duplicates = 0;
    for times in 1..=repeats {
        // The first time a sweep and a purge are passed is at the start; later ones take long to come.
        let times = |point| if matches!(point, Point::InSweep | Point::InPurge) { 1 } else { 1 + (times - 1) % 4 };
        let deaths = Point::ALL.into_iter().map(|point| die_at(on, point, times(point)));
        duplicates += try_join_all(deaths).await?.iter().sum::<usize>();
    }
    println!("r25 on {on:?}: {} deaths, {duplicates} duplicates", repeats * Point::ALL.len());
    ensure!(duplicates > 0, "a message that was published before its relay died must come again");
    Ok(())
}

#[tokio::test]
async fn r25_a_relay_may_die_at_any_point_on_postgresql() -> Result<()> {
    die_everywhere(On::Postgres).await
}

#[tokio::test]
async fn r25_a_relay_may_die_at_any_point_on_mariadb() -> Result<()> {
    die_everywhere(On::MariaDb).await
}

#[tokio::test]
async fn r25_a_relay_may_die_at_any_point_on_sqlite() -> Result<()> {
    die_everywhere(On::Sqlite).await
}
