//! One moto for a test binary, and plain clients on it.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, QueueAttributeName};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_sinks::AwsConfig;
use postrider_sinks::setting::Secret;
use testkit::brokers::moto::Moto;
use testkit::sinks::Arrival;
use tokio::sync::Mutex;

pub const REGION: &str = "eu-central-1";

/// The server of this test binary, started by the first who asks.
pub async fn shared() -> &'static Moto {
    static SHARED: OnceLock<Moto> = OnceLock::new();
    let start = || SHARED.get_or_init(|| Moto::start().expect("moto starts"));
    tokio::task::spawn_blocking(start).await.expect("started")
}

/// Access to a server on this machine.
pub fn access(port: u16) -> AwsConfig {
    let mut aws = AwsConfig::default();
    aws.region = Some(REGION.into());
    aws.endpoint = Some(format!("http://127.0.0.1:{port}"));
    aws.access_key_id = Some(Secret::new("canary-key"));
    aws.secret_access_key = Some(Secret::new("canary-secret"));
    aws
}

/// Settings for clients that have nothing to do with the sinks.
pub async fn plain(port: u16) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .load()
        .await
}

/// A queue, and a client that reads it.
#[derive(Clone)]
pub struct Queue {
    pub client: aws_sdk_sqs::Client,
    pub url: String,
    pub name: String,
}

impl Queue {
    pub async fn create(port: u16, name: &str) -> Self {
        let client = aws_sdk_sqs::Client::new(&plain(port).await);
        let queue = Self { client, url: String::new(), name: name.into() };
        Self { url: queue.create_again().await, ..queue }
    }

    pub async fn create_again(&self) -> String {
        let mut request = self.client.create_queue().queue_name(&self.name);
        if self.name.ends_with(".fifo") {
            request = request.attributes(QueueAttributeName::FifoQueue, "true");
        }
        request.send().await.expect("created").queue_url().expect("an address").to_owned()
    }

    pub async fn delete(&self) {
        self.client.delete_queue().queue_url(&self.url).send().await.expect("deleted");
    }

    pub async fn arn(&self) -> String {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = asked.attribute_names(QueueAttributeName::QueueArn).send().await.expect("asked");
        answer.attributes().expect("some")[&QueueAttributeName::QueueArn].clone()
    }

    /// Reads the queue for as long as the test runs, because of a group it may give only one message at a time.
    pub fn read(&self) -> Arc<Mutex<Vec<Arrival>>> {
        let (queue, seen) = (self.clone(), Arc::<Mutex<Vec<Arrival>>>::default());
        let all = seen.clone();
        tokio::spawn(async move {
            loop {
                let taken = queue.take().await;
                if taken.is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                all.lock().await.extend(taken);
            }
        });
        seen
    }

    /// Takes everything that is in the queue; nothing if the server does not answer.
    pub async fn take(&self) -> Vec<Arrival> {
        let mut taken = Vec::new();
        loop {
            let asked = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
            let Ok(answer) = asked.message_attribute_names("All").send().await else { return taken };
            if answer.messages().is_empty() {
                return taken;
            }
            let mut delete = self.client.delete_message_batch().queue_url(&self.url);
            for (at, message) in answer.messages().iter().enumerate() {
                let handle = message.receipt_handle().expect("a handle");
                let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle).build();
                delete = delete.entries(entry.expect("built"));
                taken.push(arrival(message));
            }
            // A server that is stopped just now has forgotten them anyway.
            let _ = delete.send().await;
        }
    }
}

/// A message as the documentation says that it is to be read.
fn arrival(message: &aws_sdk_sqs::types::Message) -> Arrival {
    let mut headers = BTreeMap::new();
    let attributes = message.message_attributes().cloned().unwrap_or_default();
    for (name, value) in attributes {
        headers.insert(name, value.string_value().expect("text").to_owned());
    }
    assert!(headers.len() <= 10, "{headers:?}");
    let body = message.body().unwrap_or_default();
    let body = match headers.remove("content-encoding").as_deref() {
        Some("base64") => STANDARD.decode(body).expect("base64"),
        _ => body.as_bytes().to_vec(),
    };
    if let Some(others) = headers.remove("headers") {
        headers.extend(serde_json::from_str::<BTreeMap<String, String>>(&others).expect("JSON"));
    }
    let key = headers.get("key").cloned();
    Arrival { body, headers, key }
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7().simple())
}
