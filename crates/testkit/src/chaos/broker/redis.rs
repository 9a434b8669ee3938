//! Redis with a stream that is synced to disk at every write.

use std::collections::HashMap;

use ::redis::streams::{StreamId, StreamReadOptions, StreamReadReply};
use ::redis::{AsyncCommands, FromRedisValue, Value};
use anyhow::{Context, Result};

use super::{LARGEST, PAUSE, STREAM, Shared, lock, note};
use crate::brokers::redis::Redis;
use crate::chaos::secret::BROKER_PASSWORD;

const AT_ONCE: usize = 1_000;

pub(super) struct Server {
    pub broker: Redis,
}

pub(super) fn configuration(port: u16) -> (String, &'static str) {
    let server = format!("urls = [\"redis://127.0.0.1:{port}\"]\n");
    (format!("type = \"redis\"\n{server}max_message_size = {LARGEST}\n"), STREAM)
}

impl Server {
    pub async fn start() -> Result<Self> {
        Ok(Self { broker: Redis::builder().password(BROKER_PASSWORD).durable().start().await? })
    }

    async fn connection(&self) -> Result<::redis::aio::MultiplexedConnection> {
        let url = format!("redis://:{BROKER_PASSWORD}@127.0.0.1:{}", self.broker.port());
        Ok(::redis::Client::open(url)?.get_multiplexed_async_connection().await?)
    }

    pub async fn last(&self) -> Result<String> {
        let mut connection = self.connection().await?;
        let reply: ::redis::streams::StreamRangeReply = connection.xrevrange_count(STREAM, "+", "-", 1).await?;
        Ok(reply.ids.into_iter().next().map(|entry| entry.id).unwrap_or_default())
    }

    pub async fn read(&self, record: &Shared) -> Result<()> {
        let mut connection = self.connection().await?;
        let options = StreamReadOptions::default().count(AT_ONCE);
        loop {
            let last = Some(lock(record).last.clone()).filter(|last| !last.is_empty());
            let after = last.unwrap_or_else(|| "0-0".into());
            let reply: Option<StreamReadReply> = connection.xread_options(&[STREAM], &[after], &options).await?;
            let entries: Vec<StreamId> =
                reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids).collect();
            if entries.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            entries.iter().try_for_each(|entry| write_down(record, entry))?;
        }
    }
}

fn write_down(record: &Shared, entry: &StreamId) -> Result<()> {
    let millis: i64 = entry.id.split_once('-').context("no id of a stream")?.0.parse()?;
    let bytes = |value: &Value| Vec::<u8>::from_redis_value_ref(value).unwrap_or_default();
    let fields: HashMap<&str, Vec<u8>> = entry.map.iter().map(|(name, value)| (name.as_str(), bytes(value))).collect();
    let header = |name: &str| fields.get(name).and_then(|value| std::str::from_utf8(value).ok());
    let body = fields.get("payload").context("an arrival without a payload")?;
    note(record, entry.id.clone(), millis * 1_000, body, header)
}
