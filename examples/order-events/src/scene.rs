//! Private servers for the demonstration and the tests: PostgreSQL, Pub/Sub and Redis. They end with the process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use postrider::sinks::PubsubConfig;
use serde_json::Value;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::brokers::pubsub::{Client, PROJECT, Received, Server};
use testkit::brokers::redis::Redis;
use testkit::show::{Running, Watched};
use testkit::{Database, Postgres, Proxy, Worker, within};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::consumer::{Arrival, Subscription};
use crate::orders::Shop;
use crate::publisher::{Publisher, TOPIC};
use crate::settings::Settings;

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);
const SUBSCRIPTION: &str = "all-events";

/// The servers, a shop, and a subscription to the topic once that is there.
pub struct Scene {
    /// The shop, with its tables.
    pub shop: Shop,
    /// Its database.
    pub database: Database,
    /// What consumers use.
    pub redis: Redis,
    /// Between publishers and Pub/Sub.
    pub proxy: Proxy,
    client: Client,
    received: Mutex<Vec<Received>>,
    publishers: AtomicUsize,
    pubsub: Server,
}

/// A publisher that runs in this process, with connections of its own.
pub struct Publishing {
    /// The name of its connections.
    name: String,
    running: Running,
}

impl Scene {
    /// Starts everything. The topic is not there yet.
    pub async fn start() -> Result<Self> {
        let (postgres, pubsub, redis) = tokio::try_join!(Postgres::shared(), Server::start(), Redis::start())?;
        let database = postgres.create_database().await?;
        let proxy = Proxy::start(([127, 0, 0, 1], pubsub.port()).into()).await?;
        let pool = database.pool().await?;
        let scene = Self {
            shop: Shop::open(pool).await?,
            database,
            redis,
            proxy,
            client: Client::new(pubsub.port())?,
            received: Mutex::default(),
            publishers: AtomicUsize::default(),
            pubsub,
        };
        scene.publisher("migration", impatient()?).await?.migrate().await?;
        Ok(scene)
    }

    /// Makes the topic, and a subscription to all that is published from now on.
    pub async fn create_topic(&self) -> Result<()> {
        self.client.create_topic(TOPIC).await?;
        self.client.subscribe(TOPIC, SUBSCRIPTION).await
    }

    /// Who plays Pub/Sub: the official emulator, or our own fake of it.
    pub fn plays_pubsub(&self) -> &'static str {
        self.pubsub.name()
    }

    /// A subscription of a consumer's own, to all that is published from now on.
    pub async fn subscribe(&self, name: &str) -> Result<Subscribed> {
        self.client.subscribe(TOPIC, name).await?;
        Ok(Subscribed { client: self.client.clone(), name: name.to_owned(), acknowledged: AtomicUsize::default() })
    }

    /// Where Pub/Sub is.
    pub fn pubsub(&self) -> PubsubConfig {
        let mut pubsub = PubsubConfig::default();
        pubsub.project = PROJECT.into();
        pubsub.emulator = Some(self.proxy.address().to_string());
        (pubsub.connect_timeout, pubsub.timeout) = (Duration::from_secs(3), Duration::from_secs(8));
        pubsub
    }

    /// A publisher with connections of its own, as a process has.
    pub async fn publisher(&self, name: &str, settings: Settings) -> Result<Publisher> {
        let options: PgConnectOptions = self.database.url().parse()?;
        let pool = PgPoolOptions::new().max_connections(6).connect_with(options.application_name(name)).await?;
        Publisher::new(pool, &self.pubsub(), settings)
    }

    /// Starts a publisher.
    pub async fn publish(&self, settings: Settings) -> Result<Publishing> {
        let name = format!("publisher-{}", self.publishers.fetch_add(1, Ordering::Relaxed));
        let running = Running::start(self.publisher(&name, settings).await?.dispatcher()?);
        Ok(Publishing { name, running })
    }

    /// Starts a publisher that is watched, under a name.
    pub async fn publish_watched(
        &self,
        name: &'static str,
        watched: &Watched,
        settings: Settings,
    ) -> Result<Publishing> {
        let publisher = self.publisher(name, settings).await?;
        let sink = watched.named(name).through(publisher.sink());
        let running = Running::start(publisher.through(Arc::new(sink)).dispatcher()?);
        Ok(Publishing { name: name.to_owned(), running })
    }

    /// A way to the topic that is watched, for [`Scene::publish_watched`].
    pub async fn watched(&self) -> Result<Watched> {
        Ok(Watched::new(self.publisher("watched", impatient()?).await?.sink()))
    }

    /// Cuts a publisher off: it does nothing more, and the database sees its connections end.
    pub async fn cut_off(&self, publisher: Publishing) -> Result<()> {
        publisher.running.cut_off().await;
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1";
        let _: i64 = sqlx::query_scalar(cut).bind(&publisher.name).fetch_one(&self.shop.pool).await?;
        Ok(())
    }

    /// All rows of the outbox by their id.
    pub async fn rows(&self) -> Result<BTreeMap<Uuid, Value>> {
        let rows = "select id, to_jsonb(outbox_events) from outbox_events";
        Ok(sqlx::query_as::<_, (Uuid, Value)>(rows).fetch_all(&self.shop.pool).await?.into_iter().collect())
    }

    /// Waits until so many rows are published.
    pub async fn published(&self, count: i64) -> Result<()> {
        let published = async || {
            let sql = "select count(*) from outbox_events where published_at is not null";
            sqlx::query_scalar::<_, i64>(sql).fetch_one(&self.shop.pool).await.is_ok_and(|found| found == count)
        };
        within(PATIENCE, &format!("{count} published rows"), published).await
    }

    /// All that has arrived so far, with duplicates, once so many different events are among it.
    pub async fn received(&self, events: usize) -> Result<Vec<Received>> {
        let arrived = async || {
            let mut received = self.received.lock().await;
            received.extend(self.client.pull(SUBSCRIPTION).await.unwrap_or_default());
            let ids = received.iter().filter_map(|message| message.attributes.get("event_id"));
            ids.collect::<std::collections::BTreeSet<_>>().len() >= events
        };
        within(PATIENCE, &format!("{events} events at the subscriber"), arrived).await?;
        // Once more, for what came twice.
        self.received.lock().await.extend(self.client.pull(SUBSCRIPTION).await?);
        Ok(self.received.lock().await.clone())
    }
}

impl Publishing {
    /// Stops it in good order.
    pub async fn stop(self) -> Result<()> {
        self.running.stop().await
    }
}

/// A subscription, by the client of the private servers. With Google's own client these are the same three calls.
pub struct Subscribed {
    client: Client,
    name: String,
    acknowledged: AtomicUsize,
}

impl Subscribed {
    /// How many arrivals were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Subscription for Subscribed {
    async fn pull(&self, most: usize) -> Result<Vec<Arrival>> {
        let taken = self.client.take(&self.name, i32::try_from(most)?).await?;
        let arrival = |(ack, Received { attributes, data, .. })| Arrival { ack, attributes, body: data };
        Ok(taken.into_iter().map(arrival).collect())
    }

    async fn acknowledge(&self, acks: Vec<String>) -> Result<()> {
        let count = acks.len();
        self.client.acknowledge(&self.name, acks).await?;
        self.acknowledged.fetch_add(count, Ordering::SeqCst);
        Ok(())
    }

    async fn give_back(&self, acks: Vec<String>) -> Result<()> {
        self.client.give_back(&self.name, acks).await
    }
}

/// Settings of a publisher that looks often, so that nobody waits for the demonstration.
pub fn impatient() -> Result<Settings> {
    Settings::read(|name| name.ends_with("POLL_MS").then(|| "100".into()))
}

/// The same for a publisher that takes few rows at once, so that others have some too.
pub fn few_at_a_time() -> Result<Settings> {
    Ok(Settings { batch_size: 4, ..impatient()? })
}

/// Starts the binary as the team does, with `make run-outbox-publisher`, on the scene's servers. `make` builds it first; here it is
/// built already. Nothing of it outlives a minute.
pub fn make_run(scene: &Scene, binary: &Path) -> Result<Worker> {
    let environment = binary_environment(scene);
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (rules, run) = (include_str!("../Makefile"), format!("RUN=timeout 60 {}", binary.display()));
    Worker::spawn("make", &["-f", "/dev/null", "--eval", rules, &run, "run-outbox-publisher"], &environment)
}

/// What the binary is told of the scene's servers.
pub fn binary_environment(scene: &Scene) -> [(&'static str, String); 6] {
    [
        ("DATABASE_URL", scene.database.url()),
        ("PACKFINDERZ_PUBSUB_PROJECT", PROJECT.into()),
        ("PUBSUB_EMULATOR_HOST", scene.proxy.address().to_string()),
        ("PACKFINDERZ_OUTBOX_LISTEN", "127.0.0.1:0".into()),
        ("PACKFINDERZ_OUTBOX_PUBLISH_POLL_MS", "100".into()),
        ("RUST_LOG", "warn".into()),
    ]
}

/// A row without the three columns that may change.
pub fn locked_columns(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(columns) = row.as_object_mut() {
        columns.retain(|name, _| !["published_at", "attempt_count", "last_error"].contains(&name.as_str()));
    }
    row
}

/// The words of an enum of the database, in their order.
pub async fn words(pool: &PgPool, of: &str) -> Result<Vec<String>> {
    let words = "select enumlabel::text from pg_enum where enumtypid = $1::regtype order by enumlabel";
    let mut words: Vec<String> = sqlx::query_scalar(words).bind(of).fetch_all(pool).await?;
    words.sort();
    Ok(words)
}
