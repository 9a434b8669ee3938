//! The parts put together: the gateway with its outbox, Kafka, and a consumer with a database of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::Sink;
use sqlx::{AssertSqlSafe, PgPool};
use testkit::brokers::kafka::{Kafka, Reader};
use testkit::show;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::chat::{Chat, MESSAGE_CREATED};
use crate::consumer::Notifier;
use crate::outbox::OutboxRepository;
use crate::publisher;

const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 2;
const PATIENCE: Duration = Duration::from_secs(20);

/// The gateway and what is around it.
pub struct World {
    /// The gateway's database.
    pub pool: PgPool,
    /// The application.
    pub chat: Chat,
    /// Its outbox.
    pub outbox: OutboxRepository,
    /// The broker.
    pub kafka: Kafka,
    /// A way to Kafka that works.
    pub sink: Arc<dyn Sink>,
    /// Another, for the time in which Kafka refuses all: its producer remembers for a while that it may not write.
    pub refused: Arc<dyn Sink>,
    /// Who reads the events.
    pub notifier: Notifier,
    reader: Reader,
    consumer: JoinHandle<Result<()>>,
}

impl World {
    /// Starts Kafka, and makes two databases on a server.
    pub async fn open(server: &testkit::Postgres) -> Result<Self> {
        let kafka = Kafka::start().await?;
        kafka.create_topic(MESSAGE_CREATED, PARTITIONS).await?;
        let pool = server.create_database().await?.pool().await?;
        let outbox = OutboxRepository::open(pool.clone(), LOCK_TIMEOUT).await?;
        sqlx::raw_sql(AssertSqlSafe(show::history("outbox"))).execute(&pool).await?;
        let notifier = Notifier::open(server.create_database().await?.pool().await?).await?;
        Ok(Self {
            chat: Chat::open(pool.clone(), outbox.clone()).await?,
            sink: publisher::sink(&publisher::kafka(kafka.address())?)?,
            refused: publisher::sink(&publisher::kafka(kafka.address())?)?,
            reader: kafka.reader(MESSAGE_CREATED, PARTITIONS)?,
            consumer: tokio::spawn(notifier.clone().run(kafka.direct(), PARTITIONS)),
            pool,
            outbox,
            kafka,
            notifier,
        })
    }

    /// Who plays Kafka.
    pub fn plays_kafka(&self) -> &'static str {
        match self.kafka.is_real() {
            true => "the broker that POSTRIDER_TEST_KAFKA names",
            false => "librdkafka's mock cluster, in this process and over real sockets",
        }
    }

    /// The keys under which an event is in Kafka, one for each copy.
    pub fn copies(&self, event: Uuid) -> Vec<String> {
        let id = event.to_string();
        let copies = self.reader.records().into_iter().filter(|record| record.headers.get("event_id") == Some(&id));
        copies.map(|record| String::from_utf8_lossy(&record.key.unwrap_or_default()).into_owned()).collect()
    }

    /// A record's status.
    pub async fn status(&self, event: Uuid) -> Result<String> {
        Ok(sqlx::query_scalar("select status from outbox where id = $1").bind(event).fetch_one(&self.pool).await?)
    }

    /// Waits until all these records have a status.
    pub async fn wait_for(&self, status: &str, events: &[Uuid]) -> Result<()> {
        let count = "select count(*) from outbox where status = $1 and id = any($2)";
        let all = async || {
            let count = sqlx::query_scalar::<_, i64>(count).bind(status).bind(events).fetch_one(&self.pool).await;
            count.is_ok_and(|count| usize::try_from(count) == Ok(events.len()))
        };
        testkit::within(PATIENCE, &format!("that {} records are {status}", events.len()), all).await
    }

    /// Waits until something holds that is not in the database.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
        testkit::within(PATIENCE, what, || std::future::ready(holds())).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.consumer.abort();
    }
}
