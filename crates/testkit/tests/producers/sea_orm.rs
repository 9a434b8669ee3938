//! Producers that use SeaORM.

use anyhow::Result;
use postrider::{Enqueued, Outbox};
use sea_orm::{ConnectOptions, ConnectionTrait, DatabaseConnection, TransactionTrait};

use super::fixture::{Fixture, order};
use super::producer::{End, Producer, Step};
use super::suite::suite;

pub struct SeaOrm(DatabaseConnection);

impl Producer for SeaOrm {
    async fn connect(url: &str) -> Result<Self> {
        let mut options = ConnectOptions::new(url);
        options.max_connections(1).sqlx_logging(false);
        Ok(Self(sea_orm::Database::connect(options).await?))
    }

    async fn transact(&mut self, outbox: &Outbox, steps: Vec<Step>, end: End) -> Result<Vec<Enqueued>> {
        let transaction = self.0.begin().await?;
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::One(message) => answers.push(outbox.enqueue(&transaction, message).await?),
                Step::Many(messages) => answers.extend(outbox.enqueue_many(&transaction, messages).await?),
                Step::Sql(sql) => {
                    transaction.execute_unprepared(&sql).await?;
                }
                Step::Meanwhile(future) => future.await?,
            }
        }
        match end {
            End::Commit => transaction.commit().await?,
            End::Rollback => transaction.rollback().await?,
        }
        Ok(answers)
    }
}

suite!(SeaOrm);

#[tokio::test]
async fn r01_a_rolled_back_savepoint_takes_only_its_own_messages() -> Result<()> {
    let fixture = Fixture::new().await?;
    let producer = SeaOrm::connect(&fixture.database.url()).await?;
    let outer = producer.0.begin().await?;
    let kept = fixture.outbox.enqueue(&outer, order(1)).await?;
    let inner = outer.begin().await?;
    let _lost = fixture.outbox.enqueue(&inner, order(2)).await?;
    inner.rollback().await?;
    outer.commit().await?;
    assert_eq!(fixture.ids().await?, [kept.id()]);
    Ok(())
}
