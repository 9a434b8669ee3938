//! A `redis-server` that keeps everything in memory.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use postrider_sinks::RedisConfig;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use uuid::Uuid;

use super::private::{Private, needed};
use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

/// So many are read at once.
const TOGETHER: usize = 1_000;

pub fn find() -> Result<PathBuf> {
    needed("redis-server", "redis://HOST:PORT")
}

pub struct RedisServer {
    client: Client,
    connection: MultiplexedConnection,
    server: Private,
}

impl RedisServer {
    pub async fn start() -> Result<Self> {
        let program = find()?;
        let server = Private::start("Ready to accept connections", |port, directory| {
            let (port, directory) = (port.to_string(), directory.display().to_string());
            let words =
                ["--bind", "127.0.0.1", "--port", &port, "--dir", &directory, "--save", "", "--appendonly", "no"];
            Ok([program.clone().into()].into_iter().chain(words.map(Into::into)).collect())
        });
        let server = server.await?;
        let url = format!("redis://127.0.0.1:{}", server.port);
        let connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
        let mut redis = RedisConfig::default();
        redis.urls = vec![url];
        Ok(Self { client: Client::new(&config::Sink::Redis(Box::new(redis)))?, connection, server })
    }
}

#[async_trait]
impl Destination for RedisServer {
    fn describe(&self) -> Described {
        Described { what: self.server.describe("redis-server", "Redis version="), counted_there: true }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let stream = format!("bench-{}", Uuid::now_v7());
        let sink = self.client.to(&stream)?;
        Ok(Place::new(sink, Stream { connection: self.connection.clone(), stream, from: "-".into() }))
    }
}

struct Stream {
    connection: MultiplexedConnection,
    stream: String,
    /// After which entry to go on.
    from: String,
}

#[async_trait]
impl Reader for Stream {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        loop {
            let mut range = redis::cmd("XRANGE");
            range.arg(&self.stream).arg(&self.from).arg("+").arg("COUNT").arg(TOGETHER);
            let read: StreamRangeReply = range.query_async(&mut self.connection).await?;
            let Some(last) = read.ids.last() else { return Ok(()) };
            self.from = format!("({}", last.id);
            for entry in &read.ids {
                arrivals.note(&entry.get::<Vec<u8>>("payload").unwrap_or_default());
            }
        }
    }
}
