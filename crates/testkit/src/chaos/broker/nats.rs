//! NATS with a stream in files.

use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::{self, stream};
use futures::StreamExt;

use super::{LARGEST, STREAM, Shared, lock, note};
use crate::brokers::nats::Nats;
use crate::chaos::secret::BROKER_PASSWORD;

const USER: &str = "relay";
const SUBJECTS: &str = "chaos.>";
/// The shortest that the server takes.
const DUPLICATES: Duration = Duration::from_millis(100);
/// When nothing comes for so long the consumer begins anew, in case that the server forgot it.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Server {
    pub broker: Nats,
}

pub(super) fn configuration(port: u16) -> (String, &'static str) {
    let server = format!("servers = [\"nats://127.0.0.1:{port}\"]\nstream = \"{STREAM}\"\n");
    (format!("type = \"nats\"\n{server}user = \"{USER}\"\n"), "chaos.{topic}")
}

impl Server {
    pub async fn start() -> Result<Self> {
        let account = format!("authorization {{ user: {USER}, password: \"{BROKER_PASSWORD}\" }}");
        let broker = Nats::builder().line(account).line(format!("max_payload: {LARGEST}")).start().await?;
        let server = Self { broker };
        let config = stream::Config {
            name: STREAM.into(),
            subjects: vec![SUBJECTS.into()],
            duplicate_window: DUPLICATES,
            ..stream::Config::default()
        };
        server.jetstream().await?.create_stream(config).await.context("cannot make the stream")?;
        Ok(server)
    }

    async fn jetstream(&self) -> Result<jetstream::Context> {
        let options = ConnectOptions::with_user_and_password(USER.into(), BROKER_PASSWORD.into());
        let connect = options.connection_timeout(PATIENCE).connect(self.broker.url());
        let client = tokio::time::timeout(PATIENCE, connect).await.context("no connection")??;
        Ok(jetstream::new(client))
    }

    pub async fn last(&self) -> Result<String> {
        let jetstream = self.jetstream().await?;
        let stream = tokio::time::timeout(PATIENCE, jetstream.get_stream(STREAM)).await.context("no answer")??;
        Ok(match stream.cached_info().state.last_sequence {
            0 => String::new(),
            last => last.to_string(),
        })
    }

    pub async fn read(&self, record: &Shared) -> Result<()> {
        let stream = self.jetstream().await?.get_stream(STREAM).await?;
        let last: u64 = lock(record).last.parse().unwrap_or(0);
        let from = DeliverPolicy::ByStartSequence { start_sequence: last + 1 };
        let config = pull::OrderedConfig { deliver_policy: from, ..pull::OrderedConfig::default() };
        let mut messages = stream.create_consumer(config).await?.messages().await?;
        while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
            let message = message?;
            let info = message.info().map_err(|error| anyhow::anyhow!("{error}"))?;
            let at = i64::try_from(info.published.unix_timestamp_nanos() / 1_000)?;
            let headers = message.headers.as_ref();
            let header = |name: &str| headers.and_then(|headers| headers.get(name)).map(|value| value.as_str());
            note(record, info.stream_sequence.to_string(), at, &message.payload, header)?;
        }
        Ok(())
    }
}
