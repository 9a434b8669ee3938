//! Producers that use tokio-postgres.

use anyhow::Result;
use postrider::{Enqueued, Outbox};
use tokio_postgres::{Client, NoTls};

use super::fixture::{Fixture, order};
use super::producer::{End, Producer, Step};
use super::suite::suite;

pub struct TokioPostgres(Client);

impl Producer for TokioPostgres {
    async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self(client))
    }

    async fn transact(&mut self, outbox: &Outbox, steps: Vec<Step>, end: End) -> Result<Vec<Enqueued>> {
        let transaction = self.0.transaction().await?;
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::One(message) => answers.push(outbox.enqueue(&transaction, message).await?),
                Step::Many(messages) => answers.extend(outbox.enqueue_many(&transaction, messages).await?),
                Step::Sql(sql) => transaction.batch_execute(&sql).await?,
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

suite!(TokioPostgres);

#[tokio::test]
async fn r01_a_rolled_back_savepoint_takes_only_its_own_messages() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut producer = TokioPostgres::connect(&fixture.database.url()).await?;
    let mut outer = producer.0.transaction().await?;
    let kept = fixture.outbox.enqueue(&outer, order(1)).await?;
    let inner = outer.transaction().await?;
    let _lost = fixture.outbox.enqueue(&inner, order(2)).await?;
    inner.rollback().await?;
    outer.commit().await?;
    assert_eq!(fixture.ids().await?, [kept.id()]);
    Ok(())
}
