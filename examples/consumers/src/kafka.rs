//! Kafka: a consumer group that goes through each partition in order.
//!
//! An offset is stored once its event is handled, and never before; what is stored is committed every few seconds, when
//! partitions change hands and at the end. After a crash the last few seconds come again, and the inbox knows them.
//!
//! An event that is not handled holds up its partition, and no other: the partition is paused, set back to the event, and
//! resumed after the pause. The client goes on asking for messages meanwhile, which Kafka needs to see.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider::inbox::Inbox;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{Consumer, Handler};

/// Where messages come from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Brokers to begin with, such as `localhost:9092`.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// The group; it begins with the oldest message.
    pub group: String,
    /// After which time without a sign a consumer counts as dead, and others take its partitions.
    pub session_timeout: Duration,
}

/// Consumes until it is stopped; the event that has begun by then is finished.
pub async fn run<I, H>(consumer: &Consumer<I, H>, settings: &Settings, stop: CancellationToken) -> KafkaResult<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let kafka: Client = ClientConfig::new()
        .set("bootstrap.servers", &settings.brokers)
        .set("group.id", &settings.group)
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", settings.session_timeout.as_millis().to_string())
        // Nothing is stored by itself; what was stored by hand is committed by itself.
        .set("enable.auto.offset.store", "false")
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", "2000")
        .create_with_context(Watch::default())?;
    kafka.subscribe(&[&settings.topic])?;
    let mut held = Held::default();
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => break,
            () = held.first_over() => {
                held.resume(&kafka, &settings.topic)?;
                continue;
            }
            message = kafka.recv() => match message {
                Ok(message) => message,
                Err(error @ KafkaError::MessageConsumptionFatal(_)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "no message from Kafka; it goes on by itself");
                    continue;
                }
            },
        };
        held.forget(&kafka, &settings.topic)?;
        if held.is_out_of_turn(&kafka, &message)? {
            continue;
        }
        let header = |name: &str| {
            let header = message.headers()?.iter().find(|header| header.key == name)?;
            std::str::from_utf8(header.value?).ok()
        };
        let answer = consumer.on_message(header, message.payload().unwrap_or_default()).await;
        match answer.again_after() {
            None => held.done(&kafka, &message),
            Some(wait) => held.hold(&kafka, &message, wait)?,
        }
    }
    // Dropping the client leaves the group and commits what is stored.
    Ok(())
}

type Client = StreamConsumer<Watch>;

/// Remembers which partitions went to another consumer, who handles what waits there.
#[derive(Default)]
struct Watch(Mutex<HashSet<i32>>);

impl ClientContext for Watch {}

impl ConsumerContext for Watch {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            let gone = partitions.elements().iter().map(|one| one.partition()).collect::<Vec<_>>();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        }
    }
}

/// Partitions that wait for an event. Nothing behind it is handled before it: storing a later offset would skip it.
#[derive(Default)]
struct Held(HashMap<i32, Hold>);

struct Hold {
    offset: i64,
    /// When the partition is resumed; nothing if that was done.
    until: Option<Instant>,
    /// Whether the partition was set back a second time.
    insisted: bool,
}

impl Held {
    /// Waits until the first pause is over; for ever if there is none.
    async fn first_over(&self) {
        match self.0.values().filter_map(|hold| hold.until).min() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Forgets the holds of partitions that were not ours for a while: who had them has handled what waited there. They
    /// would stay paused when they come back.
    fn forget(&mut self, kafka: &Client, topic: &str) -> KafkaResult<()> {
        let gone = std::mem::take(&mut *kafka.context().0.lock().unwrap_or_else(PoisonError::into_inner));
        for partition in gone.into_iter().filter(|partition| self.0.remove(partition).is_some()) {
            kafka.resume(&only(topic, partition))?;
        }
        Ok(())
    }

    fn resume(&mut self, kafka: &Client, topic: &str) -> KafkaResult<()> {
        let now = Instant::now();
        for (partition, hold) in &mut self.0 {
            // Also if the partition is not ours at the moment: it would still be paused when it comes back.
            if hold.until.take_if(|until| *until <= now).is_some() {
                kafka.resume(&only(topic, *partition))?;
            }
        }
        Ok(())
    }

    /// Whether a message stands behind one that was not handled. Its partition is set back once more then. If the event is
    /// not there even so, it is gone from the topic.
    fn is_out_of_turn(&mut self, kafka: &Client, message: &BorrowedMessage<'_>) -> KafkaResult<bool> {
        let (topic, partition) = (message.topic(), message.partition());
        let Some(hold) = self.0.get_mut(&partition).filter(|hold| message.offset() > hold.offset) else {
            return Ok(false);
        };
        if hold.insisted {
            tracing::error!(topic, partition, offset = hold.offset, "Kafka removed an event before it was handled");
            self.0.remove(&partition);
            return Ok(false);
        }
        hold.insisted = true;
        set_back(kafka, topic, partition, hold.offset)?;
        Ok(true)
    }

    /// The event was handled: its offset may be committed.
    fn done(&mut self, kafka: &Client, message: &BorrowedMessage<'_>) {
        if self.0.get(&message.partition()).is_some_and(|hold| hold.offset == message.offset()) {
            self.0.remove(&message.partition());
        }
        if let Err(error) = kafka.store_offset_from_message(message) {
            // The partition went to another consumer, whose inbox knows the event.
            tracing::debug!(%error, "an offset was not stored");
        }
    }

    /// The event was not handled: its partition waits, and begins with it again.
    fn hold(&mut self, kafka: &Client, message: &BorrowedMessage<'_>, wait: Duration) -> KafkaResult<()> {
        let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
        if !is_ours(kafka, topic, partition)? {
            return Ok(());
        }
        kafka.pause(&only(topic, partition))?;
        set_back(kafka, topic, partition, offset)?;
        self.0.insert(partition, Hold { offset, until: Some(Instant::now() + wait), insisted: false });
        Ok(())
    }
}

/// Not any more, if another consumer has come.
fn is_ours(kafka: &Client, topic: &str, partition: i32) -> KafkaResult<bool> {
    Ok(kafka.assignment()?.find_partition(topic, partition).is_some())
}

fn only(topic: &str, partition: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    list
}

/// Does not wait until it is done; [`Held::is_out_of_turn`] looks.
fn set_back(kafka: &Client, topic: &str, partition: i32, offset: i64) -> KafkaResult<()> {
    kafka.seek(topic, partition, Offset::Offset(offset), Duration::ZERO)
}
