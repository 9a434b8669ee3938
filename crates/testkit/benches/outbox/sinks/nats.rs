//! JetStream with a stream in files.

use std::sync::Arc;

use anyhow::Result;
use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context, stream};
use postrider::Sink;
use postrider::sinks::{Binding, NatsConfig, SinkConfig};
use testkit::brokers::nats::Nats;

use super::Parcel;

pub struct Peer {
    server: Nats,
    jetstream: Context,
}

const SUBJECT: &str = "bench";

impl super::Peer for Peer {
    const NAME: &'static str = "nats";
    const MESSAGES: usize = 50_000;

    async fn start() -> Result<Self> {
        let server = Nats::start().await?;
        let jetstream = jetstream::new(async_nats::connect(server.url()).await?);
        let config = stream::Config { name: "BENCH".into(), subjects: vec![SUBJECT.into()], ..Default::default() };
        jetstream.create_stream(config).await?;
        Ok(Self { server, jetstream })
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = NatsConfig::default();
        config.servers = vec![self.server.url()];
        Ok(config.client("bench")?.bind(Binding::to(SUBJECT.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        // Each round has messages of its own: what the stream knows already would not be written.
        let round = uuid::Uuid::new_v4().to_string();
        for chunk in parcels.chunks(1_000) {
            let mut acks = Vec::with_capacity(chunk.len());
            for parcel in chunk {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", format!("{round}{}", parcel.id).as_str());
                parcel.headers.iter().for_each(|(name, value)| headers.insert(name.as_str(), value.as_str()));
                acks.push(self.jetstream.publish_with_headers(SUBJECT, headers, parcel.body.clone().into()).await?);
            }
            for ack in acks {
                ack.await?;
            }
        }
        Ok(())
    }
}
