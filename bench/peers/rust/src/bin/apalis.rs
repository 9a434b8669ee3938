//! apalis with apalis-postgres: a worker that is woken by NOTIFY and also polls, as the crate's example does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use peers::{Args, Ledger, Letter, Peer};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

const QUEUE: &str = "letters";
const CONNECTIONS: u32 = 20;

struct Apalis {
    url: String,
    pool: PgPool,
    batch: usize,
    concurrency: usize,
    poll: u64,
}

async fn handle(letter: Letter, ledger: Data<Arc<Ledger>>) -> Result<(), BoxDynError> {
    ledger.note(letter.n);
    Ok(())
}

impl Peer for Apalis {
    type Client = PgConnection;
    type Worker = (WorkerContext, JoinHandle<Result<(), WorkerError>>);

    const NAME: &'static str = "apalis-postgres";
    const NUMBERS: &'static str = "select (convert_from(job, 'UTF8')::json ->> 'n')::bigint from apalis.jobs";
    const OPEN: &'static str = "select count(*) from apalis.jobs where status <> 'Done'";

    async fn set_up(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&args.url).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self {
            url: args.url.clone(),
            pool,
            batch: args.setting("batch_size", "3000").parse()?,
            concurrency: args.setting("concurrency", "1000").parse()?,
            poll: args.setting("poll_ms", "50").parse()?,
        })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("batch_size".into(), self.batch.to_string()),
            ("concurrency".into(), self.concurrency.to_string()),
            ("lock_tasks".into(), "false".into()),
            ("with_pubsub, poll_with_interval".into(), format!("{} ms", self.poll)),
            ("pool".into(), CONNECTIONS.to_string()),
            ("enqueue".into(), "queries::push_tasks in the caller's transaction".into()),
        ])
    }

    async fn client(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    async fn write(&self, client: &mut PgConnection, first: u32, count: u32) -> Result<()> {
        let letters = Letter::many(first, count);
        let task = |letter: &Letter| anyhow::Ok(TaskBuilder::new(serde_json::to_vec(letter)?).build());
        let tasks = letters.iter().map(task).collect::<Result<Vec<_>>>()?;
        let mut transaction = client.begin().await?;
        apalis_postgres::queries::push_tasks(&mut *transaction, QUEUE, tasks).await?;
        Ok(transaction.commit().await?)
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let config = Config::default().queue(QUEUE).batch_size(self.batch).lock_tasks(false);
        let backend = PostgresStorage::<Letter>::new(&self.pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(Duration::from_millis(self.poll));
        let context = WorkerContext::new("peer");
        let worker =
            WorkerBuilder::new(&context).backend(backend).data(ledger).concurrency(self.concurrency).build(handle);
        Ok((context, tokio::spawn(worker.run())))
    }

    async fn stop(&self, (context, running): Self::Worker) -> Result<()> {
        context.stop()?;
        running.await??;
        Ok(())
    }
}

fn main() -> Result<()> {
    peers::main::<Apalis>()
}
