//! A MariaDB server that crashes and comes back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::{MariaDb, within};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::everywhere::Everywhere;
use super::relay::{Relay, Settings};
use super::scene::{message, scale};

/// Two seconds are usual; the rest is for a busy machine.
const RESUMED_WITHIN: Duration = Duration::from_secs(60);
const DOWN_FOR: Duration = Duration::from_secs(1);

/// Commits a message every few milliseconds; answers what was confirmed, and how many transactions failed.
fn produce(place: &Everywhere, stop: CancellationToken) -> JoinHandle<(Vec<Uuid>, usize)> {
    let source = place.source.clone();
    tokio::spawn(async move {
        let (mut told, mut errors) = (Vec::new(), 0);
        while stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(3))).await.is_some() {
            let commit = source.commit(vec![message("load", told.len())]);
            match tokio::time::timeout(Duration::from_secs(2), commit).await {
                Ok(Ok(ids)) => told.extend(ids),
                _ => errors += 1,
            }
        }
        (told, errors)
    })
}

#[tokio::test]
async fn r33_relays_resume_after_mariadb_crashed_and_nothing_committed_is_lost() -> Result<()> {
    let server = MariaDb::builder().durable().start().await?;
    let place = Everywhere::at(server.create_database().await?.url(), None).await?;
    let (settings, cycles) = (Settings { delay_ms: 10, ..Settings::default() }, 2 * scale());
    place.commit(1_000 * scale()).await?;
    let relays = [(); 2].map(|()| Relay::spawn_at(&place.url, &place.record.url(), &settings));
    let stop = CancellationToken::new();
    let producers = [produce(&place, stop.clone()), produce(&place, stop.clone())];
    let mut slowest = Duration::ZERO;
    for _ in 0..cycles {
        let before = place.arrivals().await?.len();
        let goes_on = || async { place.arrivals().await.is_ok_and(|now| now.len() > before + 200) };
        within(RESUMED_WITHIN * 2, "arrivals", goes_on).await?;
        server.kill().await?;
        tokio::time::sleep(DOWN_FOR).await;
        server.restart().await?;
        let ready = Instant::now();
        let before = place.arrivals().await?.len();
        let resumed = || async { place.arrivals().await.is_ok_and(|now| now.len() > before + 32) };
        within(RESUMED_WITHIN, "arrivals after the restart", resumed).await?;
        slowest = slowest.max(ready.elapsed());
    }
    stop.cancel();
    let (mut told, mut errors) = (Vec::new(), 0);
    for producer in producers {
        let (confirmed, failed) = producer.await?;
        told.extend(confirmed);
        errors += failed;
    }
    ensure!(errors > 0, "the producers did not notice that the server was down");
    place.finished(Duration::from_secs(120)).await?;
    for relay in relays {
        ensure!(relay?.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    let found = place.check(2 * cycles * settings.max_rows).await?;
    let ledger = place.source.ids("select cast(id as char(36)) from ledger").await?;
    ensure!(told.iter().all(|id| ledger.contains(id)), "I1: told to be committed, and not there");
    println!("r33 on MariaDB: {found:?}, {errors} transactions failed, the slowest resumption took {slowest:?}");
    Ok(())
}
