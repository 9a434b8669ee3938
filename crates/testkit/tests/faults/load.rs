//! Producers that go on while faults happen, and remember what they were told.

use std::time::Duration;

use anyhow::{Result, ensure};
use postrider::Outbox;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::scene::{Scene, message};

/// A producer that cannot connect says so after this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Producers at work.
pub struct Load {
    stop: CancellationToken,
    producers: JoinSet<Told>,
}

/// What producers were told.
#[derive(Default)]
pub struct Told {
    /// Messages whose commit was confirmed.
    pub committed: Vec<Uuid>,
    /// Transactions that failed.
    pub errors: usize,
}

impl Load {
    /// Starts producers that each commit one message, pause, and so on.
    pub async fn start(scene: &Scene, producers: usize, pause: Duration) -> Result<Self> {
        let connections = u32::try_from(producers)?;
        let patient =
            |options: sqlx::postgres::PgPoolOptions| options.max_connections(connections).acquire_timeout(PATIENCE);
        let pool = scene.database.pool_with(patient).await?;
        let mut load = Self { stop: CancellationToken::new(), producers: JoinSet::new() };
        for _ in 0..producers {
            load.producers.spawn(produce(pool.clone(), scene.store.outbox(), load.stop.clone(), pause));
        }
        Ok(load)
    }

    /// Stops the producers.
    pub async fn stop(mut self) -> Result<Told> {
        self.stop.cancel();
        let mut all = Told::default();
        while let Some(told) = self.producers.join_next().await {
            let told = told?;
            all.committed.extend(told.committed);
            all.errors += told.errors;
        }
        ensure!(!all.committed.is_empty(), "the producers committed nothing");
        println!("producers: {} committed, {} failed", all.committed.len(), all.errors);
        Ok(all)
    }
}

async fn produce(pool: PgPool, outbox: Outbox, stop: CancellationToken, pause: Duration) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            break;
        }
        match commit(&pool, &outbox, number).await {
            Ok(id) => told.committed.push(id),
            Err(_) => told.errors += 1,
        }
    }
    told
}

/// A change of the application and its message, in one transaction.
async fn commit(pool: &PgPool, outbox: &Outbox, number: usize) -> Result<Uuid> {
    let message = message("load", number);
    let id = message.id();
    let mut transaction = pool.begin().await?;
    sqlx::query("insert into ledger values ($1)").bind(id).execute(&mut *transaction).await?;
    let _new = outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?;
    Ok(id)
}
