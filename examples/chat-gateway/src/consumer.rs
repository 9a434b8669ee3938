//! A consumer in another service: it notifies the people of a room of each message once, although Kafka may bring an event twice.
//!
//! It reads its topic from the beginning and leaves it to the inbox to know what was handled. A consumer group, with offsets and
//! partitions that change hands, is in `examples/consumers`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use postrider::inbox::{ConsumerName, Delivery, InboxTables, Once, PostgresGuard, PostgresInbox, Wire, run_once};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sqlx::PgPool;
use uuid::Uuid;

use crate::chat::{MESSAGE_CREATED, MessageCreated};

/// Nothing here keeps a second notification out: that is the inbox's work.
const TABLES: &str = "create table notifications (message_id uuid not null, room text not null)";

/// The consumer. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    inbox: PostgresInbox,
    name: ConsumerName,
    heard: Arc<Mutex<Vec<Uuid>>>,
}

impl Notifier {
    /// Makes the tables in a database of the consumer's own.
    pub async fn open(pool: PgPool) -> Result<Self> {
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        let inbox = PostgresInbox::new(pool, InboxTables::default());
        inbox.migrate().await?;
        Ok(Self { inbox, name: ConsumerName::new("notifier")?, heard: Arc::default() })
    }

    /// Handles what comes, one after the other, without an end.
    pub async fn run(self, brokers: String, partitions: i32) -> Result<()> {
        let kafka: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "notifier")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(MESSAGE_CREATED, partition, Offset::Beginning)?;
        }
        kafka.assign(&all)?;
        loop {
            let message = kafka.recv().await?;
            let header = |name: &str| {
                let header = message.headers()?.iter().find(|header| header.key == name)?;
                std::str::from_utf8(header.value?).ok()
            };
            let delivery = Delivery::read(&self.name, Wire::Broker, header)?;
            let event = serde_json::from_slice(message.payload().unwrap_or_default()).context("it is no event")?;
            // Another copy of this consumer may be at the same event.
            while !self.handle(&delivery, &event).await?.may_ack() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.event);
        }
    }

    /// The notification and the note that the event was handled are written together.
    async fn handle(&self, delivery: &Delivery, event: &MessageCreated) -> Result<Once<()>> {
        let notify = async |guard: &mut PostgresGuard| {
            sqlx::query("insert into notifications (message_id, room) values ($1, $2)")
                .bind(event.message_id)
                .bind(&event.room)
                .execute(&mut **guard.transaction())
                .await
                .map(drop)
        };
        Ok(run_once(&self.inbox, delivery, notify).await?)
    }

    /// How often an event came.
    pub fn heard(&self, event: Uuid) -> usize {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().filter(|one| **one == event).count()
    }

    /// How often the people of a room were notified.
    pub async fn notified(&self, room: &str) -> Result<i64> {
        let count = sqlx::query_scalar("select count(*) from notifications where room = $1").bind(room);
        Ok(count.fetch_one(self.inbox.pool()).await?)
    }
}
