//! Producers that use sqlx.

use anyhow::Result;
use postrider::{Enqueued, Outbox};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::producer::{End, Producer, Step};
use super::suite::suite;

pub struct Sqlx(PgConnection);

impl Producer for Sqlx {
    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(PgConnection::connect(url).await?))
    }

    async fn transact(&mut self, outbox: &Outbox, steps: Vec<Step>, end: End) -> Result<Vec<Enqueued>> {
        let mut transaction = self.0.begin().await?;
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::One(message) => answers.push(outbox.enqueue(&mut transaction, message).await?),
                Step::Many(messages) => answers.extend(outbox.enqueue_many(&mut transaction, messages).await?),
                Step::Sql(sql) => {
                    sqlx::raw_sql(AssertSqlSafe(sql.into_owned())).execute(&mut *transaction).await?;
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

suite!(Sqlx);
