//! A plain client that makes topics and subscriptions, and reads.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::PROJECT;
use super::wire::*;

/// A client of the emulator or the fake.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
}

/// A message as a subscriber gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The data, byte for byte.
    pub data: Vec<u8>,
    /// The attributes.
    pub attributes: BTreeMap<String, String>,
    /// The ordering key; empty if there is none.
    pub key: String,
}

impl Client {
    /// A client of a server on loopback. It connects with the first call, and again after that.
    pub fn new(port: u16) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).context("no address")?;
        Ok(Self { channel: endpoint.connect_lazy() })
    }

    /// Makes a topic.
    pub async fn create_topic(&self, topic: &str) -> Result<()> {
        let _: Topic = self.call("Publisher/CreateTopic", Topic { name: topic_name(topic) }).await?;
        Ok(())
    }

    /// Removes a topic.
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        let _: Empty = self.call("Publisher/DeleteTopic", TopicRequest { topic: topic_name(topic) }).await?;
        Ok(())
    }

    /// Makes a subscription with ordering, for all that is published from now on.
    pub async fn subscribe(&self, topic: &str, subscription: &str) -> Result<()> {
        let wanted = Subscription {
            name: subscription_name(subscription),
            topic: topic_name(topic),
            ack_deadline_seconds: 600,
            enable_message_ordering: true,
        };
        let _: Subscription = self.call("Subscriber/CreateSubscription", wanted).await?;
        Ok(())
    }

    /// Takes what is there for a subscription, and acknowledges it.
    pub async fn pull(&self, subscription: &str) -> Result<Vec<Received>> {
        let (ack_ids, received): (Vec<_>, Vec<_>) = self.take(subscription, 1_000).await?.into_iter().unzip();
        self.acknowledge(subscription, ack_ids).await?;
        Ok(received)
    }

    /// Takes up to so many messages, each with the id by which it is acknowledged or given back.
    pub async fn take(&self, subscription: &str, most: i32) -> Result<Vec<(String, Received)>> {
        let subscription = subscription_name(subscription);
        let wanted = PullRequest { subscription, return_immediately: true, max_messages: most };
        let pulled: PullResponse = self.call("Subscriber/Pull", wanted).await?;
        let received = pulled.received_messages.into_iter();
        Ok(received.filter_map(|received| Some((received.ack_id, received.message?.into()))).collect())
    }

    /// What was taken does not come again.
    pub async fn acknowledge(&self, subscription: &str, ack_ids: Vec<String>) -> Result<()> {
        let subscription = subscription_name(subscription);
        if !ack_ids.is_empty() {
            let _: Empty = self.call("Subscriber/Acknowledge", AcknowledgeRequest { subscription, ack_ids }).await?;
        }
        Ok(())
    }

    /// What was taken comes again.
    pub async fn give_back(&self, subscription: &str, ack_ids: Vec<String>) -> Result<()> {
        let subscription = subscription_name(subscription);
        if !ack_ids.is_empty() {
            let request = ModifyAckDeadlineRequest { subscription, ack_deadline_seconds: 0, ack_ids };
            let _: Empty = self.call("Subscriber/ModifyAckDeadline", request).await?;
        }
        Ok(())
    }

    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = format!("/google.pubsub.v1.{method}").parse();
        let path = path.map_err(|_| Status::internal("no path"))?;
        let answer = client.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }
}

fn topic_name(topic: &str) -> String {
    format!("projects/{PROJECT}/topics/{topic}")
}

fn subscription_name(subscription: &str) -> String {
    format!("projects/{PROJECT}/subscriptions/{subscription}")
}

impl From<PubsubMessage> for Received {
    fn from(message: PubsubMessage) -> Self {
        Self { data: message.data, attributes: message.attributes.into_iter().collect(), key: message.ordering_key }
    }
}
