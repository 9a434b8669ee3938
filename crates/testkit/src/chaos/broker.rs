//! The destination of a run: a broker, the relays' way to it, and a consumer that records every arrival.
//!
//! The consumer reads the stream from its beginning, goes on after an outage where it was, and drops nothing: a repeat is an
//! arrival like any other. What the stream's own duplicate window swallows never arrives; for NATS that is set to the
//! shortest there is, 100 ms, and Redis has none.

mod nats;
mod redis;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::kill;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::message::canonical;
use super::plan;
use super::secret::BROKER_PASSWORD;
use crate::checker::evidence::{Arrival, fingerprint};
use crate::proxy::Proxy;
use crate::{Mode, Signal, within};

/// The stream, and the beginning of its subjects.
const STREAM: &str = "chaos";
/// Larger messages are refused for good.
pub const LARGEST: usize = 64 * 1024;
/// How long a server may take to answer again.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the consumer waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);

enum Server {
    Nats(nats::Server),
    Redis(redis::Server),
}

/// What the consumer has read, and the place in the stream behind it.
#[derive(Default)]
struct Record {
    arrivals: Vec<Arrival>,
    last: String,
    /// Why the last attempt to read ended.
    trouble: Option<String>,
}

type Shared = Arc<Mutex<Record>>;

/// A running broker with its consumer.
pub struct Broker {
    server: Arc<Server>,
    way: Proxy,
    record: Shared,
    consumer: AbortHandle,
}

impl Broker {
    /// Starts the server with an empty stream, and the consumer.
    pub async fn start(kind: plan::Broker) -> Result<Self> {
        let server = Arc::new(match kind {
            plan::Broker::Nats => Server::Nats(nats::Server::start().await?),
            plan::Broker::Redis => Server::Redis(redis::Server::start().await?),
        });
        let way = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
        let record = Shared::default();
        let consumer = tokio::spawn(consume(server.clone(), record.clone())).abort_handle();
        Ok(Self { server, way, record, consumer })
    }

    /// The sink in a relay's configuration, which gives a publish so long, and its route.
    pub fn configuration(&self, timeout: Duration) -> String {
        let port = self.way.port();
        let (sink, destination) = match &*self.server {
            Server::Nats(_) => nats::configuration(port),
            Server::Redis(_) => redis::configuration(port),
        };
        format!(
            "[sink.broker]\n{sink}password = \"{BROKER_PASSWORD}\"\nconnect_timeout = \"1s\"\ntimeout = \"{}s\"\n\n\
             [[route]]\nsink = \"broker\"\ndestination = \"{destination}\"\n",
            timeout.as_secs()
        )
    }

    /// The relays' way to it.
    pub fn way(&self) -> &Proxy {
        &self.way
    }

    /// How many messages arrived so far, repeats included.
    pub fn arrivals(&self) -> usize {
        lock(&self.record).arrivals.len()
    }

    /// Kills the server.
    pub async fn kill(&self) -> Result<()> {
        match &*self.server {
            Server::Nats(server) => server.broker.kill().await,
            Server::Redis(server) => server.broker.kill().await,
        }
    }

    /// Starts it again with what its stream had.
    pub async fn restart(&self) -> Result<()> {
        match &*self.server {
            Server::Nats(server) => server.broker.restart().await?,
            Server::Redis(server) => server.broker.restart().await?,
        }
        self.until_ready().await
    }

    /// Freezes it, or lets it go on.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = match &*self.server {
            Server::Nats(server) => server.broker.pid(),
            Server::Redis(server) => server.broker.pid(),
        };
        kill(pid.context("the broker is stopped")?, signal).with_context(|| format!("cannot send {signal}"))
    }

    /// Whatever a fault left behind is mended.
    pub async fn heal(&self) -> Result<()> {
        self.way.set(Mode::Pass);
        let _ = self.signal(Signal::SIGCONT);
        self.until_ready().await
    }

    async fn until_ready(&self) -> Result<()> {
        within(READY_WITHIN, "a broker that answers", || async { self.server.last().await.is_ok() }).await
    }

    /// Waits until the consumer has read the whole stream.
    pub async fn until_read(&self) -> Result<()> {
        let is_read = || async {
            let Ok(end) = self.server.last().await else { return false };
            lock(&self.record).last == end
        };
        let read = within(READY_WITHIN, "a consumer at the end of the stream", is_read).await;
        read.with_context(|| format!("{:?}", lock(&self.record).trouble))
    }

    /// Ends the consumer; answers what arrived, in the stream's order.
    pub fn take(&self) -> Vec<Arrival> {
        self.consumer.abort();
        std::mem::take(&mut lock(&self.record).arrivals)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.consumer.abort();
    }
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Self::Nats(server) => server.broker.port(),
            Self::Redis(server) => server.broker.port(),
        }
    }

    /// The place of the stream's last message.
    async fn last(&self) -> Result<String> {
        match self {
            Self::Nats(server) => server.last().await,
            Self::Redis(server) => server.last().await,
        }
    }
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn consume(server: Arc<Server>, record: Shared) {
    loop {
        let read = match &*server {
            Server::Nats(server) => server.read(&record).await,
            Server::Redis(server) => server.read(&record).await,
        };
        lock(&record).trouble = read.err().map(|error| format!("{error:#}"));
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes an arrival down; `header` answers what the message carries under a name.
fn note<'a>(
    record: &Mutex<Record>,
    place: String,
    at: i64,
    body: &[u8],
    header: impl Fn(&str) -> Option<&'a str>,
) -> Result<()> {
    let id = header("event_id").context("an arrival without an id")?.parse()?;
    let attempt = header("attempt").context("an arrival without an attempt")?.parse()?;
    let tenant = header("tenant_id").map(str::parse::<Uuid>).transpose()?;
    let topic = header("topic").context("an arrival without a topic")?;
    let body = canonical(header("content-type").unwrap_or_default(), body);
    let contents = fingerprint(topic, header("key"), tenant, &body);
    let mut record = lock(record);
    record.arrivals.push(Arrival { id, attempt, contents, at });
    record.last = place;
    Ok(())
}
