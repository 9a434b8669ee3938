//! r04: producers race for the same dedupe keys at every isolation level.

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use postrider::{EnqueueError, Enqueued};

use super::scene::{OnMySql, message};

const PRODUCERS: usize = 8;
const KEYS: usize = 25;

/// One try of a whole transaction: its answer, or none if it must be tried again.
async fn attempt(scene: &OnMySql, isolation: &'static str, key: usize) -> Result<Option<Enqueued>> {
    let mut connection = scene.pool.acquire().await?;
    sqlx::raw_sql(isolation).execute(&mut *connection).await?;
    let mut transaction = sqlx::Connection::begin(&mut *connection).await?;
    // the snapshot is older than the winner's commit
    sqlx::query("select count(*) from postrider_migrations").execute(&mut *transaction).await?;
    let outbox = scene.store.outbox();
    for message in [message().dedupe_key(format!("key {key}")), message()] {
        match outbox.enqueue(&mut transaction, message).await {
            Ok(answer) if answer.is_new() => {}
            Ok(answer) => {
                transaction.commit().await?;
                return Ok(Some(answer));
            }
            Err(error) => {
                ensure!(matches!(error, EnqueueError::Conflict(_)) && error.is_retryable(), "{error:?}");
                return Ok(None);
            }
        }
    }
    let id = sqlx::query_scalar("select cast(id as char) from outbox_messages where dedupe_key = ?");
    let id: String = id.bind(format!("key {key}")).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Some(Enqueued::New(id.parse()?)))
}

/// Runs the race, checks that each key has one winner that all agree on, and answers the number of retries.
async fn race(isolation: &'static str) -> Result<usize> {
    let scene = OnMySql::new().await;
    let mut retries = 0;
    for key in 0..KEYS {
        let racers = (0..PRODUCERS).map(|_| async {
            let mut tries = 0;
            loop {
                tries += 1;
                if let Some(answer) = attempt(&scene, isolation, key).await? {
                    return anyhow::Ok((answer, tries - 1));
                }
            }
        });
        let outcomes = try_join_all(racers).await?;
        let winners = outcomes.iter().filter(|(answer, _)| answer.is_new()).count();
        ensure!(winners == 1, "{winners} winners: {outcomes:?}");
        ensure!(outcomes.iter().all(|(answer, _)| answer.id() == outcomes[0].0.id()), "{outcomes:?}");
        retries += outcomes.iter().map(|(_, retries)| retries).sum::<usize>();
    }
    let rows: i64 =
        sqlx::query_scalar("select count(distinct dedupe_key) from outbox_messages").fetch_one(&scene.pool).await?;
    ensure!(rows == i64::try_from(KEYS)?, "{rows} keys");
    Ok(retries)
}

#[tokio::test]
async fn r03_a_race_at_read_committed_has_one_winner_and_no_error() -> Result<()> {
    ensure!(race("set transaction isolation level read committed").await? == 0, "a transaction was refused");
    Ok(())
}

#[tokio::test]
async fn r03_r04_a_race_at_repeatable_read_has_one_winner_and_no_error() -> Result<()> {
    ensure!(race("set transaction isolation level repeatable read").await? == 0, "a transaction was refused");
    Ok(())
}

#[tokio::test]
async fn r04_a_race_at_serializable_fails_only_in_a_way_that_can_be_retried() -> Result<()> {
    let retries = race("set transaction isolation level serializable").await?;
    println!("r04: {retries} retries");
    Ok(())
}
