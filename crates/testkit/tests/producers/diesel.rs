//! Producers that use diesel-async.

use anyhow::{Result, anyhow, bail};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use postrider::postgres::enqueue::DieselTransaction;
use postrider::{EnqueueError, Enqueued, Outbox};

use super::fixture::{Fixture, order};
use super::producer::{End, Producer, Step};
use super::suite::suite;

pub struct Diesel(AsyncPgConnection);

/// Diesel rolls back when the closure fails, so a wanted rollback is an error that carries the answers.
#[derive(Debug)]
struct RolledBack(Vec<Enqueued>);

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("rolled back on purpose")
    }
}

impl std::error::Error for RolledBack {}

impl Producer for Diesel {
    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(AsyncPgConnection::establish(url).await?))
    }

    async fn transact(&mut self, outbox: &Outbox, steps: Vec<Step>, end: End) -> Result<Vec<Enqueued>> {
        let outcome = self
            .0
            .transaction(async |connection| {
                let answers = run(connection, outbox, steps).await?;
                if end == End::Rollback { Err(anyhow!(RolledBack(answers))) } else { Ok(answers) }
            })
            .await;
        outcome.or_else(|error: anyhow::Error| Ok(error.downcast::<RolledBack>()?.0))
    }
}

async fn run(connection: &mut AsyncPgConnection, outbox: &Outbox, steps: Vec<Step>) -> Result<Vec<Enqueued>> {
    let mut answers = Vec::new();
    for step in steps {
        match step {
            Step::One(message) => answers.push(outbox.enqueue(DieselTransaction::of(connection)?, message).await?),
            Step::Many(messages) => {
                answers.extend(outbox.enqueue_many(DieselTransaction::of(connection)?, messages).await?);
            }
            Step::Sql(sql) => connection.batch_execute(&sql).await?,
            Step::Meanwhile(future) => future.await?,
        }
    }
    Ok(answers)
}

suite!(Diesel);

#[tokio::test]
async fn r05_a_connection_without_a_transaction_is_refused_before_sql() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut producer = Diesel::connect(&fixture.database.url()).await?;
    for _ in 0..2 {
        let refused = DieselTransaction::of(&mut producer.0);
        assert!(matches!(refused.err(), Some(EnqueueError::NotInTransaction)));
        // the second round is after a transaction has ended
        producer.transact(&fixture.outbox, vec![Step::One(order(1))], End::Rollback).await?;
    }
    assert!(fixture.ids().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn r01_a_rolled_back_savepoint_takes_only_its_own_messages() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut producer = Diesel::connect(&fixture.database.url()).await?;
    let outbox = &fixture.outbox;
    let kept = producer
        .0
        .transaction(async |outer| {
            let kept = outbox.enqueue(DieselTransaction::of(outer)?, order(1)).await?;
            let inner = outer
                .transaction(async |inner| {
                    let _lost = outbox.enqueue(DieselTransaction::of(inner)?, order(2)).await?;
                    bail!("roll the savepoint back");
                    #[allow(unreachable_code)]
                    Ok(())
                })
                .await;
            assert!(inner.is_err());
            anyhow::Ok(kept)
        })
        .await?;
    assert_eq!(fixture.ids().await?, [kept.id()]);
    Ok(())
}
