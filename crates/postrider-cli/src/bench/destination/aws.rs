//! `moto_server`, which plays Amazon's services and keeps everything in memory: it shows what the sinks cost, and not what Amazon
//! does. What a topic gets is read from a queue that subscribes to it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_sinks::AwsConfig;
use postrider_sinks::setting::Secret;
use uuid::Uuid;

use super::private::{Private, needed};
use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

const REGION: &str = "eu-central-1";
/// The service asks for some, whatever they are.
const KEY: &str = "bench";
/// What was read does not come again before everything is over.
const HIDDEN_SECONDS: &str = "43200";
/// The most that one request gets.
const TOGETHER: i32 = 10;

pub fn find() -> Result<PathBuf> {
    needed("moto_server", "sqs=QUEUE or sns=ARN")
}

/// A running service with a client for queues.
struct Moto {
    queues: aws_sdk_sqs::Client,
    server: Private,
}

impl Moto {
    async fn start() -> Result<Self> {
        let program = find()?;
        let server = Private::start("Running on http://127.0.0.1:{port}", |port, _| {
            let words = ["-H", "127.0.0.1", "-p"].map(Into::into);
            Ok([program.clone().into()].into_iter().chain(words).chain([port.to_string().into()]).collect())
        });
        let server = server.await?;
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .endpoint_url(endpoint(&server))
            .credentials_provider(Credentials::new(KEY, KEY, None, None, KEY))
            .build();
        Ok(Self { queues: aws_sdk_sqs::Client::from_conf(config), server })
    }

    fn describe(&self) -> Described {
        Described { what: "moto_server".into(), counted_there: true }
    }

    fn settings(&self) -> AwsConfig {
        let mut aws = AwsConfig::default();
        (aws.region, aws.endpoint) = (Some(REGION.into()), Some(endpoint(&self.server)));
        (aws.access_key_id, aws.secret_access_key) = (Some(Secret::new(KEY)), Some(Secret::new(KEY)));
        aws
    }

    /// A queue with nothing in it.
    async fn queue(&self, name: &str) -> Result<Queue> {
        let create = self.queues.create_queue().queue_name(name);
        let create = create.attributes(QueueAttributeName::VisibilityTimeout, HIDDEN_SECONDS);
        let url = create.send().await?.queue_url.context("the queue has no address")?;
        Ok(Queue { client: self.queues.clone(), url })
    }
}

fn endpoint(server: &Private) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

fn new_name() -> String {
    format!("bench-{}", Uuid::now_v7())
}

struct Queue {
    client: aws_sdk_sqs::Client,
    url: String,
}

#[async_trait]
impl Reader for Queue {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        loop {
            let receive = self.client.receive_message().queue_url(&self.url).max_number_of_messages(TOGETHER);
            let received = receive.send().await?;
            if received.messages().is_empty() {
                return Ok(());
            }
            received.messages().iter().for_each(|message| arrivals.note(message.body().unwrap_or_default().as_bytes()));
        }
    }
}

#[cfg(feature = "sqs")]
pub struct Queues {
    client: Client,
    moto: Moto,
}

#[cfg(feature = "sqs")]
impl Queues {
    pub async fn start() -> Result<Self> {
        let moto = Moto::start().await?;
        let mut sqs = postrider_sinks::SqsConfig::default();
        sqs.aws = moto.settings();
        Ok(Self { client: Client::new(&config::Sink::Sqs(Box::new(sqs)))?, moto })
    }
}

#[cfg(feature = "sqs")]
#[async_trait]
impl Destination for Queues {
    fn describe(&self) -> Described {
        self.moto.describe()
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let name = new_name();
        let queue = self.moto.queue(&name).await?;
        Ok(Place::new(self.client.to(&name)?, queue))
    }
}

#[cfg(feature = "sns")]
pub struct Topics {
    client: Client,
    topics: aws_sdk_sns::Client,
    moto: Moto,
}

#[cfg(feature = "sns")]
impl Topics {
    pub async fn start() -> Result<Self> {
        let moto = Moto::start().await?;
        let config = aws_sdk_sns::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .endpoint_url(endpoint(&moto.server))
            .credentials_provider(Credentials::new(KEY, KEY, None, None, KEY))
            .build();
        let mut sns = postrider_sinks::SnsConfig::default();
        sns.aws = moto.settings();
        let client = Client::new(&config::Sink::Sns(Box::new(sns)))?;
        Ok(Self { client, topics: aws_sdk_sns::Client::from_conf(config), moto })
    }
}

#[cfg(feature = "sns")]
#[async_trait]
impl Destination for Topics {
    fn describe(&self) -> Described {
        self.moto.describe()
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let name = new_name();
        let queue = self.moto.queue(&name).await?;
        let of_queue = self.moto.queues.get_queue_attributes().queue_url(&queue.url);
        let of_queue = of_queue.attribute_names(QueueAttributeName::QueueArn).send().await?;
        let arn = of_queue.attributes().and_then(|all| all.get(&QueueAttributeName::QueueArn));
        let arn = arn.context("the queue has no name")?;
        let topic = self.topics.create_topic().name(&name).send().await?.topic_arn.context("the topic has no name")?;
        let subscribe = self.topics.subscribe().topic_arn(&topic).protocol("sqs").endpoint(arn);
        // The queue gets the message itself, without SNS's envelope.
        subscribe.attributes("RawMessageDelivery", "true").send().await?;
        Ok(Place::new(self.client.to(&topic)?, queue))
    }
}
