//! A `nats-server` with JetStream, whose streams are in files.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream};
use async_trait::async_trait;
use futures::StreamExt as _;
use postrider_sinks::NatsConfig;
use uuid::Uuid;

use super::private::{Private, needed};
use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

/// So many are read at once.
const TOGETHER: usize = 1_000;

pub fn find() -> Result<PathBuf> {
    needed("nats-server", "nats://HOST:PORT")
}

pub struct NatsServer {
    client: Client,
    jetstream: Context,
    server: Private,
}

impl NatsServer {
    pub async fn start() -> Result<Self> {
        let program = find()?;
        let server = Private::start("Server is ready", |port, directory| {
            let (port, store) = (port.to_string(), directory.join("store"));
            let words = ["--addr", "127.0.0.1", "--port", &port, "--jetstream", "--store_dir"].map(Into::into);
            Ok([program.clone().into()].into_iter().chain(words).chain([store.into()]).collect())
        });
        let server = server.await?;
        let url = format!("nats://127.0.0.1:{}", server.port);
        let jetstream = jetstream::new(async_nats::connect(&url).await?);
        let mut nats = NatsConfig::default();
        nats.servers = vec![url];
        Ok(Self { client: Client::new(&config::Sink::Nats(Box::new(nats)))?, jetstream, server })
    }
}

#[async_trait]
impl Destination for NatsServer {
    fn describe(&self) -> Described {
        Described { what: self.server.describe("nats-server", "Version:"), counted_there: true }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let name = format!("bench-{}", Uuid::now_v7());
        let config = stream::Config { name: name.clone(), subjects: vec![name.clone()], ..Default::default() };
        let stream = self.jetstream.create_stream(config).await?;
        let nothing_to_say = pull::Config { ack_policy: AckPolicy::None, ..Default::default() };
        let consumer = stream.create_consumer(nothing_to_say).await?;
        Ok(Place::new(self.client.to(&name)?, Stream { consumer }))
    }
}

struct Stream {
    consumer: PullConsumer,
}

#[async_trait]
impl Reader for Stream {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        loop {
            let mut messages = self.consumer.fetch().max_messages(TOGETHER).messages().await?;
            let mut read = 0;
            while let Some(message) = messages.next().await {
                arrivals.note(&message.map_err(|error| anyhow!("{error}"))?.payload);
                read += 1;
            }
            if read == 0 {
                return Ok(());
            }
        }
    }
}
