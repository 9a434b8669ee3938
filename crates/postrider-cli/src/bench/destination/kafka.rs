//! librdkafka's mock cluster in this process, which keeps messages in memory: it shows what the sink and its producer cost, and not
//! what a broker of Kafka does.
//!
//! A partition of it keeps five megabytes, so there are enough of them for all messages of one side.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use postrider_sinks::KafkaConfig;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _, DefaultConsumerContext};
use rdkafka::message::Message as _;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};

use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

const TOPIC: &str = "bench";
const PARTITIONS: i32 = 16;
/// For a broker in the same process.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Nothing for so long: everything was read.
const POLL: Duration = Duration::from_millis(300);

/// The cluster stays on the thread that made it, until this is dropped.
pub struct Mock {
    client: Client,
    brokers: String,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    pub async fn start() -> Result<Self> {
        let (started, start) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let made = MockCluster::<DefaultProducerContext>::new(1)
                .and_then(|cluster| cluster.create_topic(TOPIC, PARTITIONS, 1).map(|()| cluster));
            let told = started.send(made.as_ref().map(MockCluster::bootstrap_servers).map_err(Clone::clone));
            if told.is_ok() && made.is_ok() {
                // The end of the channel is the only thing that comes.
                let _ = stopped.recv();
            }
        });
        let brokers = start.recv().context("the mock cluster ended")?.context("the mock cluster does not start")?;
        let mut kafka = KafkaConfig::default();
        kafka.brokers = vec![brokers.clone()];
        let client = Client::new(&config::Sink::Kafka(Box::new(kafka)))?;
        Ok(Self { client, brokers, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Destination for Mock {
    fn describe(&self) -> Described {
        Described { what: "librdkafka's mock cluster in this process".into(), counted_there: true }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let brokers = self.brokers.clone();
        let ends = tokio::task::spawn_blocking(move || ends(&brokers)).await??;
        Ok(Place::new(self.client.to(TOPIC)?, Topic { brokers: self.brokers.clone(), next: ends }))
    }
}

/// By partition, where the next message goes.
type Places = HashMap<i32, i64>;

fn consumer(brokers: &str) -> Result<BaseConsumer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "bench").set("enable.auto.commit", "false");
    Ok(config.set("fetch.wait.max.ms", "10").create::<BaseConsumer<DefaultConsumerContext>>()?)
}

fn ends(brokers: &str) -> Result<Places> {
    let consumer = consumer(brokers)?;
    let end = |partition| Ok((partition, consumer.fetch_watermarks(TOPIC, partition, TIMEOUT)?.1));
    (0..PARTITIONS).map(end).collect()
}

struct Topic {
    brokers: String,
    next: Places,
}

#[async_trait]
impl Reader for Topic {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        let (brokers, next) = (self.brokers.clone(), self.next.clone());
        let (read, next) = tokio::task::spawn_blocking(move || read_from(&brokers, next)).await??;
        self.next = next;
        read.iter().for_each(|body| arrivals.note(body));
        Ok(())
    }
}

/// Reads to the ends of all partitions as they are now.
fn read_from(brokers: &str, mut next: Places) -> Result<(Vec<Vec<u8>>, Places)> {
    let ends = ends(brokers)?;
    let consumer = consumer(brokers)?;
    let mut all = TopicPartitionList::new();
    for (partition, offset) in &next {
        all.add_partition_offset(TOPIC, *partition, Offset::Offset(*offset))?;
    }
    consumer.assign(&all)?;
    let mut read = Vec::new();
    let is_behind = |next: &Places| next.iter().any(|(partition, offset)| ends.get(partition) > Some(offset));
    while is_behind(&next) {
        let Some(message) = consumer.poll(POLL) else { break };
        let message = message?;
        next.insert(message.partition(), message.offset() + 1);
        read.push(message.payload().unwrap_or_default().to_vec());
    }
    Ok((read, next))
}
