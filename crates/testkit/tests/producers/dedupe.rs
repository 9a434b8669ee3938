//! r03 and r04: many producers race on the same dedupe keys.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use postrider::{EnqueueError, Enqueued};
use tokio::sync::Barrier;

use super::fixture::{Fixture, order};

const PRODUCERS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "set transaction isolation level read committed",
            Self::RepeatableRead => "set transaction isolation level repeatable read",
            Self::Serializable => "set transaction isolation level serializable",
        }
    }
}

/// One try of a whole transaction: its answer, or none if it must be tried again.
async fn attempt(fixture: &Fixture, isolation: Isolation, key: usize) -> Result<Option<Enqueued>> {
    let mut transaction = fixture.pool.begin().await?;
    sqlx::query(isolation.sql()).execute(&mut *transaction).await?;
    let answer = match fixture.outbox.enqueue(&mut transaction, order(1).dedupe_key(format!("key {key}"))).await {
        Ok(answer) => answer,
        Err(error) => {
            ensure!(matches!(error, EnqueueError::Conflict(_)) && error.is_retryable(), "{error:?}");
            return Ok(None);
        }
    };
    // no answer may leave the transaction aborted
    sqlx::query("insert into changes (note) values ('go on')").execute(&mut *transaction).await?;
    match transaction.commit().await {
        Ok(()) => Ok(Some(answer)),
        Err(error) => {
            let state = error.as_database_error().and_then(|error| error.code()).context("an SQLSTATE")?;
            ensure!(state == "40001", "commit failed with {state}");
            Ok(None)
        }
    }
}

/// Takes part in the race for every key; answers what it was told, and how often it had to try again.
async fn race(
    fixture: Arc<Fixture>,
    barrier: Arc<Barrier>,
    isolation: Isolation,
    keys: usize,
) -> Result<(Vec<Enqueued>, usize)> {
    let (mut answers, mut retries) = (Vec::with_capacity(keys), 0);
    for key in 0..keys {
        barrier.wait().await;
        loop {
            match attempt(&fixture, isolation, key).await? {
                Some(answer) => break answers.push(answer),
                None => retries += 1,
            }
        }
    }
    Ok((answers, retries))
}

/// Runs the race, checks that each key has one winner that all agree on, and answers the number of retries.
async fn run(isolation: Isolation, keys: usize) -> Result<usize> {
    let fixture = Arc::new(Fixture::with_connections(u32::try_from(PRODUCERS)?).await?);
    let barrier = Arc::new(Barrier::new(PRODUCERS));
    // the first error ends the race: the others would wait at the barrier for ever
    let racers = (0..PRODUCERS).map(|_| {
        let racer = tokio::spawn(race(fixture.clone(), barrier.clone(), isolation, keys));
        async move { racer.await? }
    });
    let outcomes = try_join_all(racers).await?;
    let ids = fixture.ids().await?;
    assert_eq!(ids.len(), keys, "one row per key");
    for key in 0..keys {
        let answers: Vec<Enqueued> = outcomes.iter().map(|(answers, _)| answers[key]).collect();
        assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 1, "one winner: {answers:?}");
        assert!(
            answers.iter().all(|answer| answer.id() == answers[0].id() && ids.contains(&answer.id())),
            "{answers:?}"
        );
    }
    assert_eq!(fixture.changes().await?, i64::try_from(keys * PRODUCERS)?);
    Ok(outcomes.iter().map(|(_, retries)| retries).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r03_a_race_at_read_committed_has_one_winner_and_no_error() -> Result<()> {
    assert_eq!(run(Isolation::ReadCommitted, 300).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_race_at_repeatable_read_fails_only_in_a_way_that_can_be_retried() -> Result<()> {
    assert!(run(Isolation::RepeatableRead, 100).await? > 0, "the race never met");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_race_at_serializable_fails_only_in_a_way_that_can_be_retried() -> Result<()> {
    assert!(run(Isolation::Serializable, 100).await? > 0, "the race never met");
    Ok(())
}
