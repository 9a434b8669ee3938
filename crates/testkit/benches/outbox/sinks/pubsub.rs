//! Google's emulator, or our own fake where it is not installed; either keeps its data in memory.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::model::Message;
use postrider::Sink;
use postrider::sinks::{Binding, PubsubConfig, SinkConfig};
use testkit::brokers::pubsub::{PROJECT, Server};

use super::Parcel;

pub struct Peer {
    server: Server,
    publisher: Publisher,
}

const TOPIC: &str = "bench";

impl super::Peer for Peer {
    const NAME: &'static str = "pubsub";
    const MESSAGES: usize = 10_000;

    async fn start() -> Result<Self> {
        let server = Server::start().await?;
        println!("Pub/Sub is {}", server.name());
        testkit::brokers::pubsub::Client::new(server.port())?.create_topic(TOPIC).await?;
        let publisher = Publisher::builder(format!("projects/{PROJECT}/topics/{TOPIC}"))
            .with_endpoint(format!("http://127.0.0.1:{}", server.port()))
            .with_credentials(anonymous::Builder::new().build())
            .build()
            .await?;
        Ok(Self { server, publisher })
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = PubsubConfig::default();
        config.emulator = Some(format!("127.0.0.1:{}", self.server.port()));
        config.project = PROJECT.into();
        Ok(config.client("bench")?.bind(Binding::to(TOPIC.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        for chunk in parcels.chunks(1_000) {
            let publish = |parcel: &Parcel| {
                let message = Message::new().set_data(parcel.body.clone()).set_attributes(parcel.headers.clone());
                self.publisher.publish(message)
            };
            try_join_all(chunk.iter().map(publish)).await?;
        }
        Ok(())
    }
}
