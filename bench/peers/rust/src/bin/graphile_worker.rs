//! graphile_worker, the Rust rewrite: the settings that its documentation has for throughput.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext, WorkerOptions, WorkerUtils,
};
use peers::{Args, Ledger, Letter, Peer};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

const SCHEMA: &str = "graphile_worker";
const CONCURRENCY: usize = 16;
const CONNECTIONS: u32 = 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Task(Letter);

impl TaskHandler for Task {
    const IDENTIFIER: &'static str = "letter";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let ledger = context.get_ext::<Arc<Ledger>>().ok_or("no ledger")?;
        ledger.note(self.0.n);
        Ok::<(), &'static str>(())
    }
}

struct GraphileWorker {
    url: String,
    pool: PgPool,
    utils: WorkerUtils,
    local_queue: usize,
    batch_delay: u64,
}

impl GraphileWorker {
    fn options(&self) -> WorkerOptions {
        let delay = Duration::from_millis(self.batch_delay);
        WorkerOptions::default()
            .pg_pool(self.pool.clone())
            .schema(SCHEMA)
            .concurrency(CONCURRENCY)
            .local_queue(LocalQueueConfig::default().with_size(self.local_queue))
            .complete_job_batch_delay(delay)
            .fail_job_batch_delay(delay)
            .define_job::<Task>()
    }
}

impl Peer for GraphileWorker {
    type Client = PgConnection;
    type Worker = (Arc<Worker>, JoinHandle<Result<()>>);

    const NAME: &'static str = "graphile_worker";
    const NUMBERS: &'static str = "select (payload ->> 'n')::bigint from graphile_worker._private_jobs";
    const OPEN: &'static str = "select count(*) from graphile_worker._private_jobs";

    async fn set_up(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&args.url).await?;
        let peer = Self {
            url: args.url.clone(),
            utils: WorkerUtils::new(pool.clone(), SCHEMA),
            pool,
            local_queue: args.setting("local_queue.size", "500").parse()?,
            batch_delay: args.setting("complete_job_batch_delay", "5").parse()?,
        };
        peer.utils.migrate().await?;
        Ok(peer)
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("concurrency".into(), CONCURRENCY.to_string()),
            ("local_queue.size".into(), self.local_queue.to_string()),
            ("complete_job_batch_delay".into(), format!("{} ms", self.batch_delay)),
            ("fail_job_batch_delay".into(), format!("{} ms", self.batch_delay)),
            ("pool".into(), CONNECTIONS.to_string()),
            ("enqueue".into(), "add_job and add_jobs in the caller's transaction".into()),
        ])
    }

    async fn client(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    async fn write(&self, client: &mut PgConnection, first: u32, count: u32) -> Result<()> {
        let mut transaction = client.begin().await?;
        let mut utils = self.utils.clone().with_executor(&mut *transaction);
        if count == 1 {
            utils.add_job(Task(Letter::new(first)), JobSpec::default()).await?;
        } else {
            let spec = JobSpec::default();
            let jobs: Vec<(Task, &JobSpec)> =
                Letter::many(first, count).into_iter().map(|it| (Task(it), &spec)).collect();
            utils.add_jobs(&jobs).await?;
        }
        drop(utils);
        Ok(transaction.commit().await?)
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let worker = Arc::new(self.options().add_extension(ledger).init().await?);
        let running = tokio::spawn({
            let worker = worker.clone();
            async move { worker.run().await.context("the worker failed") }
        });
        Ok((worker, running))
    }

    async fn stop(&self, (worker, running): Self::Worker) -> Result<()> {
        worker.request_shutdown();
        running.await?
    }
}

fn main() -> Result<()> {
    peers::main::<GraphileWorker>()
}
