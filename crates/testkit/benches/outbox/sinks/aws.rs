//! moto, which imitates AWS in Python: what is measured is mostly its time.
//!
//! It does one thing at a time, so requests wait for each other: relay and bare client have the same number of them under
//! way, each of ten messages, and time enough. For each message that is sent to a queue it looks at every message in
//! it, three times: what nobody received would make every round slower than the one before, so the queue is emptied all
//! the time, as a consumer would.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use aws_sdk_sns::types::{MessageAttributeValue as TopicAttribute, PublishBatchRequestEntry};
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{MessageAttributeValue as QueueAttribute, SendMessageBatchRequestEntry};
use futures::stream::{self, StreamExt, TryStreamExt};
use postrider::sinks::setting::Secret;
use postrider::sinks::{Binding, SinkConfig, SnsConfig, SqsConfig};
use postrider::{DispatcherBuilder, Sink};
use testkit::brokers::moto::Moto;
use tokio::task::JoinSet;

use super::Parcel;

/// Requests under way.
const AT_A_TIME: usize = 10;
/// Messages of a request, the most that the services take.
const TOGETHER: usize = 10;
/// How long a request may take, behind the others.
const TIMEOUT: Duration = Duration::from_secs(30);
const EMPTY_EVERY: Duration = Duration::from_millis(50);
/// A message has at most ten attributes.
const ATTRIBUTES: usize = 8;

fn endpoint(server: &Moto) -> String {
    format!("http://127.0.0.1:{}", server.port())
}

/// A publish is one request, so that the relay has as many under way as the bare client.
fn paced(relay: DispatcherBuilder) -> DispatcherBuilder {
    relay.concurrency(AT_A_TIME).publish_timeout(TIMEOUT * 2)
}

/// Takes from the queue what arrives there.
async fn keep_empty(client: aws_sdk_sqs::Client, url: String) {
    loop {
        tokio::time::sleep(EMPTY_EVERY).await;
        if let Err(error) = client.purge_queue().queue_url(&url).send().await {
            eprintln!("the queue was not emptied: {error}");
        }
    }
}

pub struct Queue {
    /// It ends with this set.
    _consumer: JoinSet<()>,
    server: Moto,
    client: aws_sdk_sqs::Client,
    url: String,
}

impl super::Peer for Queue {
    const NAME: &'static str = "sqs";
    const MESSAGES: usize = 500;

    async fn start() -> Result<Self> {
        let server = tokio::task::spawn_blocking(Moto::start).await??;
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .endpoint_url(endpoint(&server))
            .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
            .build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        let url = client.create_queue().queue_name("bench").send().await?.queue_url.unwrap_or_default();
        let consumer = JoinSet::from_iter([keep_empty(client.clone(), url.clone())]);
        Ok(Self { _consumer: consumer, server, client, url })
    }

    fn relay(relay: DispatcherBuilder) -> DispatcherBuilder {
        paced(relay)
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = SqsConfig::default();
        (config.max_batch, config.timeout) = (TOGETHER, TIMEOUT);
        config.aws.endpoint = Some(endpoint(&self.server));
        config.aws.region = Some("eu-west-1".into());
        config.aws.access_key_id = Some(Secret::new("bench"));
        config.aws.secret_access_key = Some(Secret::new("bench"));
        Ok(config.client("bench")?.bind(Binding::to("bench".parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        let send = async |chunk: &[Parcel]| -> Result<()> {
            let entry = |(at, parcel): (usize, &Parcel)| {
                let body = String::from_utf8_lossy(&parcel.body).into_owned();
                let entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body);
                let attributes = parcel.headers.iter().take(ATTRIBUTES);
                attributes
                    .fold(entry, |entry, (name, value)| {
                        let value = QueueAttribute::builder().data_type("String").string_value(value).build();
                        entry.message_attributes(name, value.unwrap_or_else(|_| unreachable!("it has a type")))
                    })
                    .build()
            };
            let entries = chunk.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
            let sent = self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries)).send().await?;
            ensure!(sent.failed.is_empty(), "some failed");
            Ok(())
        };
        stream::iter(parcels.chunks(TOGETHER)).map(Ok).try_for_each_concurrent(AT_A_TIME, send).await
    }
}

pub struct Topic {
    server: Moto,
    client: aws_sdk_sns::Client,
    arn: String,
}

impl super::Peer for Topic {
    const NAME: &'static str = "sns";
    const MESSAGES: usize = 500;

    async fn start() -> Result<Self> {
        let server = tokio::task::spawn_blocking(Moto::start).await??;
        let config = aws_sdk_sns::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .endpoint_url(endpoint(&server))
            .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
            .build();
        let client = aws_sdk_sns::Client::from_conf(config);
        let arn = client.create_topic().name("bench").send().await?.topic_arn.unwrap_or_default();
        Ok(Self { server, client, arn })
    }

    fn relay(relay: DispatcherBuilder) -> DispatcherBuilder {
        paced(relay)
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = SnsConfig::default();
        (config.max_batch, config.timeout) = (TOGETHER, TIMEOUT);
        config.aws.endpoint = Some(endpoint(&self.server));
        config.aws.region = Some("eu-west-1".into());
        config.aws.access_key_id = Some(Secret::new("bench"));
        config.aws.secret_access_key = Some(Secret::new("bench"));
        Ok(config.client("bench")?.bind(Binding::to(self.arn.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        let send = async |chunk: &[Parcel]| -> Result<()> {
            let entry = |(at, parcel): (usize, &Parcel)| {
                let body = String::from_utf8_lossy(&parcel.body).into_owned();
                let entry = PublishBatchRequestEntry::builder().id(at.to_string()).message(body);
                let attributes = parcel.headers.iter().take(ATTRIBUTES);
                attributes
                    .fold(entry, |entry, (name, value)| {
                        let value = TopicAttribute::builder().data_type("String").string_value(value).build();
                        entry.message_attributes(name, value.unwrap_or_else(|_| unreachable!("it has a type")))
                    })
                    .build()
            };
            let entries = chunk.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
            let request = self.client.publish_batch().topic_arn(&self.arn);
            let sent = request.set_publish_batch_request_entries(Some(entries)).send().await?;
            ensure!(sent.failed().is_empty(), "some failed");
            Ok(())
        };
        stream::iter(parcels.chunks(TOGETHER)).map(Ok).try_for_each_concurrent(AT_A_TIME, send).await
    }
}
