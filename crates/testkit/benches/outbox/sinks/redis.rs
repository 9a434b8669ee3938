//! Redis, which keeps its data in memory.

use std::sync::Arc;

use anyhow::Result;
use postrider::Sink;
use postrider::sinks::{Binding, RedisConfig, SinkConfig};
use redis::aio::MultiplexedConnection;
use testkit::brokers::redis::Redis;

use super::Parcel;

pub struct Peer {
    server: Redis,
    connection: MultiplexedConnection,
}

const STREAM: &str = "bench";

impl super::Peer for Peer {
    const NAME: &'static str = "redis";
    const MESSAGES: usize = 50_000;

    async fn start() -> Result<Self> {
        let server = Redis::start().await?;
        let connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        Ok(Self { server, connection })
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = RedisConfig::default();
        config.urls = vec![self.server.url()];
        Ok(config.client("bench")?.bind(Binding::to(STREAM.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        let mut connection = self.connection.clone();
        for chunk in parcels.chunks(1_000) {
            let mut pipeline = redis::pipe();
            for parcel in chunk {
                let add = pipeline.cmd("XADD").arg(STREAM).arg("*").arg("payload").arg(&parcel.body);
                parcel.headers.iter().for_each(|(name, value)| {
                    add.arg(name).arg(value);
                });
                add.ignore();
            }
            pipeline.query_async::<()>(&mut connection).await?;
        }
        Ok(())
    }
}
