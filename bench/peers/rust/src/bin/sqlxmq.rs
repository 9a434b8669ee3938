//! sqlxmq.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use peers::{Args, Ledger, Letter, Peer};
use sqlx_0_8::migrate::Migrator;
use sqlx_0_8::postgres::{PgPool, PgPoolOptions};
use sqlx_0_8::{Connection, PgConnection};
use sqlxmq::{CurrentJob, JobRegistry, JobRunnerHandle, job};

const CONNECTIONS: u32 = 20;
/// The `#[job]` macro makes a static of the handler, so its ledger is one, too.
static LEDGER: OnceLock<Arc<Ledger>> = OnceLock::new();

#[job(channel_name = "letters")]
async fn letter(mut current: CurrentJob) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
    let arrived: Letter = current.json()?.ok_or("no payload")?;
    LEDGER.get().ok_or("no ledger")?.note(arrived.n);
    current.complete().await?;
    Ok(())
}

struct Sqlxmq {
    url: String,
    pool: PgPool,
    least: usize,
    most: usize,
}

impl Peer for Sqlxmq {
    type Client = PgConnection;
    type Worker = JobRunnerHandle;

    const NAME: &'static str = "sqlxmq";
    const NUMBERS: &'static str = "select (payload_json ->> 'n')::bigint from mq_payloads";
    // One row is the crate's own.
    const OPEN: &'static str = "select count(*) from mq_msgs where id <> uuid_nil()";

    async fn set_up(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&args.url).await?;
        Migrator::new(Path::new(env!("SQLXMQ_MIGRATIONS"))).await?.run(&pool).await?;
        Ok(Self {
            url: args.url.clone(),
            pool,
            least: args.setting("min_concurrency", "500").parse()?,
            most: args.setting("max_concurrency", "2000").parse()?,
        })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("set_concurrency".into(), format!("{}, {}", self.least, self.most)),
            ("pool".into(), CONNECTIONS.to_string()),
            ("enqueue".into(), "spawn in the caller's transaction, one by one".into()),
        ])
    }

    async fn client(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    async fn write(&self, client: &mut PgConnection, first: u32, count: u32) -> Result<()> {
        let mut transaction = client.begin().await?;
        for it in Letter::many(first, count) {
            letter.builder().set_json(&it)?.spawn(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        LEDGER.set(ledger).ok().context("a ledger is there already")?;
        let mut runner = JobRegistry::new(&[letter]).runner(&self.pool);
        Ok(runner.set_concurrency(self.least, self.most).run().await?)
    }

    async fn stop(&self, mut worker: Self::Worker) -> Result<()> {
        worker.stop().await;
        Ok(())
    }
}

fn main() -> Result<()> {
    peers::main::<Sqlxmq>()
}
