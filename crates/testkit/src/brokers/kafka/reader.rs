//! A plain consumer that keeps all it reads. It is in no group and commits nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

const POLL: Duration = Duration::from_millis(20);

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The value; nothing is not the same as an empty one.
    pub value: Option<Vec<u8>>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The headers as text.
    pub headers: BTreeMap<String, String>,
    /// Where it is.
    pub partition: i32,
    /// Its time in milliseconds since 1970.
    pub timestamp: Option<i64>,
}

/// Reads one topic in the background.
pub struct Reader {
    read: Arc<Mutex<Vec<Record>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(brokers: &str, topic: &str, partitions: i32) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "testkit")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "10")
            .set("reconnect.backoff.max.ms", "100")
            .create()?;
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&all)?;
        let (read, stop) = <(Arc<Mutex<Vec<Record>>>, Arc<AtomicBool>)>::default();
        let (kept, stopped) = (read.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // Errors are of the connection; it comes back by itself.
                if let Some(Ok(message)) = consumer.poll(POLL) {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(record(&message));
                }
            }
        });
        Ok(Self { read, stop, thread: Some(thread) })
    }

    /// All that was read so far, in its order within each partition.
    pub fn records(&self) -> Vec<Record> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn record(message: &impl Message) -> Record {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default())).collect()
    });
    Record {
        value: message.payload().map(<[u8]>::to_vec),
        key: message.key().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
        partition: message.partition(),
        timestamp: message.timestamp().to_millis(),
    }
}
