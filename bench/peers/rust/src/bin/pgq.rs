//! PgQ: events between two ticks are a batch. The ticker is the real one, pgqd of the same package source.
//!
//! There is no client library for Rust; the client's part is three calls of SQL functions, as PgQ's documentation has them.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use peers::{Args, Ledger, Letter, Peer};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, Statement};
use url::Url;

const QUEUE: &str = "letters";
const CONSUMER: &str = "bench";

struct PgQ {
    url: String,
    admin: Client,
    /// Seconds between two ticks.
    tick: f64,
    /// How often a consumer that found no batch looks again.
    poll: Duration,
    /// Ends with us.
    _ticker: Child,
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Starts pgqd for this database alone.
async fn ticker(url: &str, tick: f64) -> Result<Child> {
    let url = Url::parse(url)?;
    let host = url.host_str().context("the address has no host")?;
    let (port, user) = (url.port().unwrap_or(5432), url.username());
    let password = url.password().map(|password| format!(" password={password}")).unwrap_or_default();
    let database = url.path().trim_start_matches('/');
    let config = format!(
        "[pgqd]\nbase_connstr = host={host} port={port} user={user}{password}\ninitial_database = {database}\n\
         database_list = {database}\nticker_period = {tick}\ncheck_period = 1\nsyslog = 0\n"
    );
    let file = std::env::temp_dir().join(format!("pgqd-{}.ini", std::process::id()));
    std::fs::write(&file, config)?;
    let mut pgqd = Command::new("pgqd");
    pgqd.arg("-q").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    pgqd.spawn().context("cannot start pgqd")
}

impl Peer for PgQ {
    type Client = (Client, Statement);
    type Worker = (watch::Sender<bool>, JoinHandle<Result<()>>);

    const NAME: &'static str = "pgq";
    const NUMBERS: &'static str = "select (ev_data::json ->> 'n')::bigint from pgq.event_template";
    const OPEN: &'static str =
        "select coalesce(sum(pending_events), 0)::bigint from pgq.get_consumer_info('letters', 'bench')";

    async fn set_up(args: &Args) -> Result<Self> {
        let admin = connect(&args.url).await?;
        admin.batch_execute("create extension pgq").await?;
        admin.execute("select pgq.create_queue($1)", &[&QUEUE]).await?;
        admin.execute("select pgq.register_consumer($1, $2)", &[&QUEUE, &CONSUMER]).await?;
        // A tick whenever the ticker looks and there is something new.
        admin.execute("select pgq.set_queue_config($1, 'ticker_max_lag', '1 ms')", &[&QUEUE]).await?;
        let tick: f64 = args.setting("ticker_period", "0.1").parse()?;
        let poll = Duration::from_millis(args.setting("poll_ms", "10").parse()?);
        Ok(Self { url: args.url.clone(), admin, tick, poll, _ticker: ticker(&args.url, tick).await? })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("pgqd: ticker_period".into(), format!("{} s", self.tick)),
            ("ticker_max_lag".into(), "1 ms".into()),
            ("ticker_max_count".into(), "500".into()),
            ("consumer looks every".into(), format!("{:?}", self.poll)),
            ("enqueue".into(), "insert_event in the caller's transaction; 100 by one statement".into()),
        ])
    }

    async fn client(&self) -> Result<(Client, Statement)> {
        let client = connect(&self.url).await?;
        let insert = client.prepare("select pgq.insert_event($1, 'letter', $2)").await?;
        Ok((client, insert))
    }

    async fn write(&self, (client, insert): &mut (Client, Statement), first: u32, count: u32) -> Result<()> {
        let transaction = client.transaction().await?;
        if count == 1 {
            transaction.execute(insert, &[&QUEUE, &Letter::new(first).json()?]).await?;
        } else {
            let texts = Letter::many(first, count).iter().map(Letter::json).collect::<Result<Vec<_>>>()?;
            let insert = "select count(pgq.insert_event($1, 'letter', event)) from unnest($2::text[]) event";
            transaction.execute(insert, &[&QUEUE, &texts]).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The last events get their tick now and not in a while, so that the whole backlog is there to be read.
    async fn after_fill(&self) -> Result<()> {
        self.admin.execute("select pgq.force_tick($1)", &[&QUEUE]).await?;
        self.admin.execute("select pgq.ticker($1)", &[&QUEUE]).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let (stop, stopped) = watch::channel(false);
        let (client, poll) = (connect(&self.url).await?, self.poll);
        let running = tokio::spawn(async move {
            let next = client.prepare("select pgq.next_batch($1, $2)").await?;
            let events = client.prepare("select ev_data from pgq.get_batch_events($1)").await?;
            let finish = client.prepare("select pgq.finish_batch($1)").await?;
            while !*stopped.borrow() {
                let batch: Option<i64> = client.query_one(&next, &[&QUEUE, &CONSUMER]).await?.get(0);
                let Some(batch) = batch else {
                    tokio::time::sleep(poll).await;
                    continue;
                };
                for event in client.query(&events, &[&batch]).await? {
                    let letter: Letter = serde_json::from_str(event.get(0))?;
                    ledger.note(letter.n);
                }
                client.execute(&finish, &[&batch]).await?;
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
    peers::main::<PgQ>()
}
