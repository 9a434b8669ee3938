//! Where the messages of a sink's scenario go: one file per type of sink, with a server of our own if its program is on this
//! machine, or the one that `--sink` names.
//!
//! At a server of our own every message is read back by a client that has nothing to do with the sink, and must be there.
//! Of a server that somebody else has nothing is read: there a message counts as arrived when its sink says so.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(any(feature = "sqs", feature = "sns"))]
mod aws;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
pub mod named;
#[cfg(feature = "nats")]
mod nats;
#[cfg(any(
    feature = "pubsub",
    feature = "nats",
    feature = "amqp",
    feature = "redis",
    feature = "sqs",
    feature = "sns"
))]
mod private;
#[cfg(feature = "provider")]
mod provider;
#[cfg(feature = "pubsub")]
mod pubsub;
#[cfg(feature = "redis")]
mod redis;
mod stdout;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use postrider::Sink;
use postrider_sinks::{Binding, SinkClient};
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use super::scenario::Type;
use crate::config;

/// No arrival for so long means that nothing comes any more.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Where messages went, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// What it is.
    pub what: String,
    /// Whether what arrived was counted there, and not only by the sink's answers.
    pub counted_there: bool,
}

impl Described {
    pub fn sentence(&self) -> String {
        let counted = if self.counted_there { "there" } else { "by the sink's answers" };
        format!("to {}; what arrived was counted {counted}", self.what)
    }
}

/// A server with places for messages. Dropping it ends what was started for it.
#[async_trait]
pub trait Destination: Send + Sync {
    fn describe(&self) -> Described;

    /// An empty place there, and the sink that leads to it.
    async fn place(&self, arrivals: &Arc<Ledger>) -> Result<Place>;
}

/// Where the messages of one side go.
pub struct Place {
    pub sink: Arc<dyn Sink>,
    /// Nothing where it cannot be read.
    pub reader: Option<Box<dyn Reader>>,
}

impl Place {
    pub fn new(sink: Arc<dyn Sink>, reader: impl Reader + 'static) -> Self {
        Self { sink, reader: Some(Box::new(reader)) }
    }
}

/// Reads from a place, with a client of its own.
#[async_trait]
pub trait Reader: Send {
    /// Notes what is there and was not read yet.
    async fn read(&mut self, arrivals: &Ledger) -> Result<()>;
}

/// Reads until everything is there and no more comes.
pub async fn read_all(reader: &mut dyn Reader, arrivals: &Ledger, expected: u32) -> Result<()> {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        reader.read(arrivals).await.context("what arrived cannot be read")?;
        let now = arrivals.arrived();
        if now == expected || (now == before && since.elapsed() > PATIENCE) {
            return Ok(());
        }
        if now != before {
            (before, since) = (now, Instant::now());
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// Starts what is needed for a type of sink.
pub async fn open(kind: Type) -> Result<Box<dyn Destination>> {
    missing(kind).map_or(Ok(()), Err)?;
    Ok(match kind {
        Type::Stdout => Box::new(stdout::Pipe),
        #[cfg(feature = "http")]
        Type::Http => Box::new(http::Receiver::start().await?),
        #[cfg(feature = "kafka")]
        Type::Kafka => Box::new(kafka::Mock::start().await?),
        #[cfg(feature = "pubsub")]
        Type::Pubsub => Box::new(pubsub::Emulator::start().await?),
        #[cfg(feature = "nats")]
        Type::Nats => Box::new(nats::NatsServer::start().await?),
        #[cfg(feature = "amqp")]
        Type::Amqp => Box::new(amqp::RabbitMq::start().await?),
        #[cfg(feature = "redis")]
        Type::Redis => Box::new(redis::RedisServer::start().await?),
        #[cfg(feature = "sqs")]
        Type::Sqs => Box::new(aws::Queues::start().await?),
        #[cfg(feature = "sns")]
        Type::Sns => Box::new(aws::Topics::start().await?),
        #[cfg(feature = "provider")]
        Type::Provider => Box::new(provider::Slack::start().await?),
        #[allow(unreachable_patterns)] // in a build with every sink
        _ => anyhow::bail!("this binary was built without the sink {}", kind.name()),
    })
}

/// Why a type of sink has no destination on this machine, as far as it can be told without starting anything.
pub fn missing(kind: Type) -> Option<anyhow::Error> {
    let found = match kind {
        #[cfg(feature = "pubsub")]
        Type::Pubsub => pubsub::find().map(drop),
        #[cfg(feature = "nats")]
        Type::Nats => nats::find().map(drop),
        #[cfg(feature = "amqp")]
        Type::Amqp => amqp::find().map(drop),
        #[cfg(feature = "redis")]
        Type::Redis => redis::find().map(drop),
        #[cfg(feature = "sqs")]
        Type::Sqs => aws::find().map(drop),
        #[cfg(feature = "sns")]
        Type::Sns => aws::find().map(drop),
        _ => Ok(()),
    };
    found.err()
}

/// What the sinks to all places of a destination share, as routes do: connections are made once.
struct Client(Box<dyn SinkClient>);

impl Client {
    fn new(sink: &config::Sink) -> Result<Self> {
        Ok(Self(sink.config().client("bench")?))
    }

    fn to(&self, destination: &str) -> Result<Arc<dyn Sink>> {
        Ok(self.0.bind(Binding::to(destination.parse()?))?)
    }

    /// Of a sink whose messages say where they go.
    #[allow(dead_code)] // in a build without it
    fn anywhere(&self) -> Result<Arc<dyn Sink>> {
        Ok(self.0.bind(Binding::default())?)
    }
}
