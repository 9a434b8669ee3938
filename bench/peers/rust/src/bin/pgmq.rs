//! pgmq, installed as plain SQL by its own crate: read 1,000, handle them, delete them by one statement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use peers::{Args, Ledger, Letter, Peer};
use pgmq::PGMQueueExt;
use sqlx_0_8::postgres::PgPoolOptions;
use sqlx_0_8::{Connection, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const QUEUE: &str = "letters";
/// Seconds in which nobody else reads what was read.
const VISIBILITY: i32 = 30;
/// How long a read waits in the server for messages to come.
const WAIT: Duration = Duration::from_secs(1);

struct Pgmq {
    url: String,
    queue: PGMQueueExt,
    batch: i32,
    poll: u64,
}

impl Peer for Pgmq {
    type Client = PgConnection;
    type Worker = (watch::Sender<bool>, JoinHandle<Result<()>>);

    const NAME: &'static str = "pgmq";
    const NUMBERS: &'static str = "select (message ->> 'n')::bigint from pgmq.q_letters";
    const OPEN: &'static str = "select count(*) from pgmq.q_letters";

    async fn set_up(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(4).connect(&args.url).await?;
        let queue = PGMQueueExt::new_with_pool(pool).await;
        queue.install_sql_from_embedded().await?;
        queue.create(QUEUE).await?;
        Ok(Self {
            url: args.url.clone(),
            queue,
            batch: args.setting("qty", "1000").parse()?,
            poll: args.setting("poll_interval_ms", "10").parse()?,
        })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("read_with_poll: qty".into(), self.batch.to_string()),
            ("read_with_poll: vt".into(), format!("{VISIBILITY} s")),
            ("read_with_poll: poll_interval_ms".into(), self.poll.to_string()),
            ("settled by".into(), "delete of all that was read".into()),
            ("enqueue".into(), "send and send_batch in the caller's transaction".into()),
        ])
    }

    async fn client(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    async fn write(&self, client: &mut PgConnection, first: u32, count: u32) -> Result<()> {
        let mut transaction = client.begin().await?;
        if count == 1 {
            self.queue.send_with_cxn(QUEUE, &Letter::new(first), &mut *transaction).await?;
        } else {
            self.queue.send_batch_with_cxn(QUEUE, &Letter::many(first, count), &mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let (stop, stopped) = watch::channel(false);
        let (queue, batch, every) = (self.queue.clone(), self.batch, Duration::from_millis(self.poll));
        let running = tokio::spawn(async move {
            while !*stopped.borrow() {
                let read = queue.read_batch_with_poll::<Letter>(QUEUE, VISIBILITY, batch, Some(WAIT), Some(every));
                let messages = read.await?.context("no answer")?;
                messages.iter().for_each(|message| ledger.note(message.message.n));
                let ids: Vec<i64> = messages.iter().map(|message| message.msg_id).collect();
                queue.delete_batch(QUEUE, &ids).await?;
            }
            Ok(())
        });
        Ok((stop, running))
    }

    async fn stop(&self, (stop, running): Self::Worker) -> Result<()> {
        stop.send(true)?;
        running.await?
    }
}

fn main() -> Result<()> {
    peers::main::<Pgmq>()
}
