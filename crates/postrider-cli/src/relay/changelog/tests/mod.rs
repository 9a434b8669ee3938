//! How a carrier goes about its entries, on SQLite and with closures for sinks.

mod troubled;

use std::sync::Mutex;
use std::time::Instant;

use anyhow::Result;
use postrider::{AnyStore, ClaimedMessage, Connect, Names, PublishError, callback};
use postrider_changelog::{Change, Changelog, Operation};
use tempfile::TempDir;

use self::troubled::Troubled;
use super::*;
use crate::config::Admin;

/// A changelog with two entries, and what the sink was called with.
struct Scene {
    reader: Arc<Troubled>,
    calls: Arc<Mutex<Vec<(Uuid, i32, Instant)>>>,
    _directory: TempDir,
}

impl Scene {
    async fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let url = format!("sqlite:{}", directory.path().join("outbox.db").display());
        let store = AnyStore::connect(&url, &Connect { create: true, ..Connect::default() }).await?;
        store.migrate().await?;
        let reader = postrider_changelog::open(&store)?;
        let AnyStore::Sqlite(store) = store else { anyhow::bail!("no SQLite") };
        let changelog = Changelog::new(store.pool().clone(), Names::default()).enabled(true);
        for id in ["one", "two"] {
            let mut transaction = store.pool().begin().await?;
            let reservation = changelog.reserve(&mut transaction).await?;
            let operation = Operation::Delete { check_version: None };
            let change = Change { namespace: "shop".into(), table: "orders".into(), external_id: id.into(), operation };
            changelog.append(&mut transaction, reservation, id, vec![change]).await?;
            transaction.commit().await?;
        }
        Ok(Self { reader: Arc::new(Troubled::new(reader)), calls: Arc::default(), _directory: directory })
    }

    /// A carrier to a sink that answers so, given how often it was called before.
    fn carrier<A>(&self, answer: impl Fn(usize) -> A + Send + Sync + 'static) -> Result<Carrier>
    where
        A: Future<Output = Result<(), PublishError>> + Send + 'static,
    {
        let calls = self.calls.clone();
        let sink = callback(move |message: ClaimedMessage| {
            let mut calls = calls.lock().expect("calls");
            calls.push((message.id, message.attempts, Instant::now()));
            answer(calls.len() - 1)
        });
        let mut source = Source { retry_base: Duration::from_millis(1), ..Source::default() };
        source.retry_max = Duration::from_millis(600);
        source.changelog.lease = Duration::from_secs(6);
        source.changelog.poll_interval = Duration::from_millis(20);
        let mut config = Config::default();
        config.relay.shutdown_grace = Duration::from_secs(60);
        Ok(Carrier::new(("shop", &source), "trail", &config, self.reader.clone(), Arc::new(sink))?)
    }

    /// Runs a carrier until the sink was called so often and the position is written.
    async fn run(&self, carrier: &Carrier, calls: usize) -> Vec<(Uuid, i32, Instant)> {
        let stop = CancellationToken::new();
        let enough = async {
            while self.calls.lock().expect("calls").len() < calls {
                sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let ran = async { tokio::join!(carrier.run(&stop), enough) };
        timeout(Duration::from_secs(120), ran).await.expect("it does not come to an end");
        self.calls.lock().expect("calls").clone()
    }

    async fn behind(&self) -> Result<u128> {
        Ok(self.reader.consumers().await?.first().map_or(u128::MAX, |consumer| consumer.behind))
    }
}

#[tokio::test]
async fn a_retry_comes_not_before_the_sink_asked_for_it_and_attempts_are_counted() -> Result<()> {
    let scene = Scene::new().await?;
    let after = Duration::from_millis(700);
    let carrier = scene.carrier(move |call| async move {
        match call {
            0 => Err(PublishError::retry_after(after, "later")),
            1 => Err(PublishError::retry("again")),
            _ => Ok(()),
        }
    })?;
    let calls = scene.run(&carrier, 4).await;
    assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [1, 2, 3, 1]);
    assert!(calls[0].0 == calls[1].0 && calls[1].0 == calls[2].0 && calls[2].0 != calls[3].0, "{calls:?}");
    assert!(calls[1].2 - calls[0].2 >= after, "{calls:?}");
    assert_eq!(scene.behind().await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_is_refused_for_good_waits_for_the_longest_and_is_not_skipped() -> Result<()> {
    let scene = Scene::new().await?;
    let carrier = scene.carrier(|call| async move {
        match call {
            0 => Err(PublishError::reject("never")),
            1 => Err(PublishError::unsendable("not even sent")),
            _ => Ok(()),
        }
    })?;
    let calls = scene.run(&carrier, 4).await;
    assert!(calls[0].0 == calls[1].0 && calls[1].0 == calls[2].0, "{calls:?}");
    // Half of the longest delay is chance.
    for pair in [&calls[0..2], &calls[1..3]] {
        assert!(pair[1].2 - pair[0].2 >= Duration::from_millis(300), "{calls:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_sink_that_panics_has_an_unknown_outcome_and_is_called_again() -> Result<()> {
    let scene = Scene::new().await?;
    let carrier = scene.carrier(|call| async move {
        assert!(call > 0, "on purpose");
        Ok(())
    })?;
    let calls = scene.run(&carrier, 3).await;
    assert!(calls[0].0 == calls[1].0 && calls[1].0 != calls[2].0, "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn a_publish_that_takes_longer_than_the_lease_keeps_it() -> Result<()> {
    let scene = Scene::new().await?;
    let reader = scene.reader.clone();
    // Three renewals are a whole lease.
    let slow = scene.carrier(move |_| renewed(reader.clone(), 4))?;
    let calls = scene.run(&slow, 1).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(scene.behind().await?, 1, "it was under way, so it counts");
    Ok(())
}

/// Takes until the lease was renewed so often.
async fn renewed(reader: Arc<Troubled>, times: usize) -> Result<(), PublishError> {
    let before = reader.renewals.load(Ordering::SeqCst);
    while reader.renewals.load(Ordering::SeqCst) < before + times {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_publish_outlives_a_renewal_that_does_not_get_through() -> Result<()> {
    let scene = Scene::new().await?;
    let reader = scene.reader.clone();
    let slow = scene.carrier(move |call| {
        reader.away.store(if call == 0 { 2 } else { 0 }, Ordering::SeqCst);
        renewed(reader.clone(), 1)
    })?;
    let calls = scene.run(&slow, 2).await;
    assert_eq!(scene.reader.away.load(Ordering::SeqCst), 0, "both were tried");
    assert!(calls.len() == 2 && calls[0].0 != calls[1].0, "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_reached_is_written_while_the_next_publish_takes_long() -> Result<()> {
    let scene = Scene::new().await?;
    let reader = scene.reader.clone();
    let carrier = scene.carrier(move |call| {
        let reader = reader.clone();
        async move {
            while call == 1 && reader.consumers().await.map_or(true, |consumers| consumers[0].behind != 1) {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        }
    })?;
    scene.run(&carrier, 2).await;
    assert_eq!(scene.behind().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_position_whose_answer_is_lost_or_that_does_not_get_through_is_written_again_and_nothing_is_sent_twice()
-> Result<()> {
    let scene = Scene::new().await?;
    for trouble in [&scene.reader.lost_answers, &scene.reader.away] {
        scene.reader.reset("route/trail", Default::default()).await?;
        scene.calls.lock().expect("calls").clear();
        trouble.store(1, Ordering::SeqCst);
        let carrier = scene.carrier(|_| async { Ok(()) })?;
        let stop = CancellationToken::new();
        let written = async {
            while scene.behind().await.unwrap_or(9) > 0 || scene.reader.renewals.load(Ordering::SeqCst) == 0 {
                sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let ran = async { tokio::join!(carrier.run(&stop), written) };
        timeout(Duration::from_secs(120), ran).await.expect("it does not come to an end");
        assert_eq!(trouble.load(Ordering::SeqCst), 0);
        assert_eq!(scene.calls.lock().expect("calls").len(), 2);
        scene.reader.renewals.store(0, Ordering::SeqCst);
    }
    Ok(())
}

#[tokio::test]
async fn a_stop_writes_what_could_not_be_written_before() -> Result<()> {
    let scene = Scene::new().await?;
    scene.reader.away.store(1, Ordering::SeqCst);
    let carrier = scene.carrier(|_| async { Ok(()) })?;
    let stop = CancellationToken::new();
    let failed = async {
        while scene.reader.away.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    tokio::join!(carrier.run(&stop), failed);
    assert_eq!(scene.behind().await?, 0);
    assert_eq!(scene.reader.consumers().await?[0].held_by, None, "the lease is given back");
    Ok(())
}

#[tokio::test]
async fn a_changelog_that_cannot_be_read_holds_its_route_back_all_the_time_under_one_lease() -> Result<()> {
    let scene = Scene::new().await?;
    scene.reader.refuses.store(true, Ordering::SeqCst);
    let carrier = scene.carrier(|_| async { Ok(()) })?;
    let limits = Admin { oldest_due_limit: Duration::from_millis(1), ..Admin::default() };
    let stop = CancellationToken::new();
    let look = async {
        while scene.reader.consumers().await?.first().is_none_or(|consumer| consumer.last_error.is_none()) {
            sleep(Duration::from_millis(5)).await;
        }
        let (owner, first) = (scene.reader.consumers().await?[0].held_by, scene.reader.lists.load(Ordering::SeqCst));
        assert!(owner.is_some());
        while scene.reader.lists.load(Ordering::SeqCst) < first + 3 {
            let (good, said) = carrier.signs.health(&limits);
            assert!(!good && said["held_back"] == "unreadable", "{said}");
            sleep(Duration::from_millis(5)).await;
        }
        let held = scene.reader.consumers().await?.remove(0);
        assert_eq!(held.held_by, owner);
        assert!(held.last_error.is_some_and(|why| why.contains("permission denied")));
        scene.reader.refuses.store(false, Ordering::SeqCst);
        while scene.calls.lock().expect("calls").len() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        Ok::<(), ChangelogError>(())
    };
    let ran = async { tokio::join!(carrier.run(&stop), look) };
    timeout(Duration::from_secs(120), ran).await.expect("it does not come to an end").1?;
    assert_eq!(scene.reader.consumers().await?[0].last_error, None);
    Ok(())
}

#[tokio::test]
async fn a_lease_that_is_taken_away_ends_the_wait_and_the_route_goes_on_from_its_new_place() -> Result<()> {
    let scene = Scene::new().await?;
    let carrier = scene.carrier(|call| async move {
        match call {
            0 => Err(PublishError::retry_after(Duration::from_secs(3_600), "in an hour")),
            _ => Ok(()),
        }
    })?;
    let moves = async {
        while scene.reader.consumers().await?.iter().all(|consumer| consumer.last_error.is_none()) {
            sleep(Duration::from_millis(5)).await;
        }
        let first = scene.reader.list(Default::default(), 1).await?;
        scene.reader.reset("route/trail", first.next.into()).await
    };
    let (calls, moved) = tokio::join!(scene.run(&carrier, 2), moves);
    assert!(moved?);
    assert!(calls[0].0 != calls[1].0, "the first was skipped by an operator: {calls:?}");
    assert_eq!(scene.behind().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_busy_destination_is_asked_again_after_the_longest_delay_at_the_latest() -> Result<()> {
    let scene = Scene::new().await?;
    let carrier = scene.carrier(|_| async { Ok(()) })?;
    let page = scene.reader.list(Default::default(), 1).await?;
    let consumer = carrier.consumer.acquire().await?.expect("a lease");
    let mut hold = Hold { held: consumer, unwritten: Unwritten::none(), renewed: tokio::time::Instant::now() };
    let mut trial = Trial::default();
    let refused = Outcome::Reject("the entry is too large".into());
    carrier.failed(&mut hold, &page.entries[0], &mut trial, &refused).await?;
    trial.since = tokio::time::Instant::now().checked_sub(BUSY_PATIENCE);
    let busy = Outcome::Busy { after: Duration::from_secs(3_600), why: "left alone".into() };
    carrier.failed(&mut hold, &page.entries[0], &mut trial, &busy).await?;
    let wait = trial.not_before.expect("a delay").duration_since(tokio::time::Instant::now());
    assert!(wait <= Duration::from_millis(600), "{wait:?}");
    let said = scene.reader.consumers().await?.remove(0).last_error;
    assert_eq!(said.as_deref(), Some("the entry is too large"), "what the destination said of the entry stays");
    Ok(())
}
