//! A Kafka cluster of one broker: librdkafka's mock cluster in this process, on loopback sockets.
//!
//! It speaks Kafka's protocol to any client and keeps what it was sent (the last 5 MB of each partition) in memory. It
//! knows neither TLS nor SASL nor limits of size, and does not check the sequence numbers of idempotent producers. Clients
//! under test come through a [`Relay`], which can lose answers. With `POSTRIDER_TEST_KAFKA=host:port` a real broker takes
//! its place; [`Kafka::is_real`] says so, and what needs the mock's faults must be left out then.

mod reader;
mod relay;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

pub use reader::{Reader, Record};
pub use relay::{Credentials, Relay};

/// The variable with the address of a real broker.
pub const REAL: &str = "POSTRIDER_TEST_KAFKA";

type Cluster = MockCluster<'static, DefaultProducerContext>;
type Order = Box<dyn FnOnce(&Cluster) + Send>;

/// A running broker. Dropping it ends it.
pub struct Kafka {
    backend: Backend,
}

enum Backend {
    Mock { mock: Mock, relay: Relay },
    Real(String),
}

impl Kafka {
    /// Starts the mock, or takes the broker that the environment names.
    pub async fn start() -> Result<Self> {
        if let Ok(address) = std::env::var(REAL) {
            return Ok(Self { backend: Backend::Real(address) });
        }
        let mock = Mock::start()?;
        let relay = Relay::start(mock.address).await?;
        Ok(Self { backend: Backend::Mock { mock, relay } })
    }

    /// Whether this is a real broker.
    pub fn is_real(&self) -> bool {
        matches!(self.backend, Backend::Real(_))
    }

    /// Where clients under test connect to.
    pub fn address(&self) -> String {
        match &self.backend {
            Backend::Mock { relay, .. } => format!("127.0.0.1:{}", relay.port()),
            Backend::Real(address) => address.clone(),
        }
    }

    /// Where other clients connect to.
    pub fn direct(&self) -> String {
        match &self.backend {
            Backend::Mock { mock, .. } => mock.address.to_string(),
            Backend::Real(address) => address.clone(),
        }
    }

    /// Creates a topic.
    pub async fn create_topic(&self, topic: &str, partitions: i32) -> Result<()> {
        match &self.backend {
            Backend::Mock { mock, .. } => {
                let topic = topic.to_owned();
                mock.ask(move |cluster| cluster.create_topic(&topic, partitions, 1))?.context("no topic was made")
            }
            Backend::Real(address) => {
                let admin: AdminClient<DefaultClientContext> =
                    ClientConfig::new().set("bootstrap.servers", address).create()?;
                let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
                let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
                let made = admin.create_topics([&new], &options).await?;
                made.into_iter().try_for_each(|made| {
                    made.map(drop).map_err(|(topic, code)| anyhow!("the topic {topic} was not made: {code}"))
                })
            }
        }
    }

    /// Reads all of a topic, from its beginning and on.
    pub fn reader(&self, topic: &str, partitions: i32) -> Result<Reader> {
        Reader::start(&self.direct(), topic, partitions)
    }

    /// The next requests of a kind fail with these errors, one each.
    pub fn fail(&self, kind: RDKafkaApiKey, errors: Vec<RDKafkaRespErr>) -> Result<()> {
        self.mock()?.ask(move |cluster| cluster.request_errors(kind, &errors))
    }

    /// Requests of a kind do not fail any more.
    pub fn forgive(&self, kind: RDKafkaApiKey) -> Result<()> {
        self.mock()?.ask(move |cluster| cluster.clear_request_errors(kind))
    }

    /// What is said of a topic to those that ask for its metadata; no error ends it.
    pub fn topic_error(&self, topic: &str, error: RDKafkaRespErr) -> Result<()> {
        let topic = topic.to_owned();
        Ok(self.mock()?.ask(move |cluster| cluster.topic_error(&topic, error))??)
    }

    /// Closes all connections and takes no new ones; what it has, it keeps.
    pub fn stop(&self) -> Result<()> {
        Ok(self.mock()?.ask(|cluster| cluster.broker_down(-1))??)
    }

    /// Takes connections again, at the same address.
    pub fn restart(&self) -> Result<()> {
        Ok(self.mock()?.ask(|cluster| cluster.broker_up(-1))??)
    }

    /// Requests arrive, and answers get lost.
    pub fn silence(&self) -> Result<()> {
        self.relay()?.silence(true);
        Ok(())
    }

    /// The end of that.
    pub fn speak(&self) -> Result<()> {
        self.relay()?.silence(false);
        Ok(())
    }

    /// How many requests of a kind came through the relay.
    pub fn requests(&self, kind: RDKafkaApiKey) -> Result<usize> {
        Ok(self.relay()?.requests(kind as i16))
    }

    fn mock(&self) -> Result<&Mock> {
        match &self.backend {
            Backend::Mock { mock, .. } => Ok(mock),
            Backend::Real(_) => Err(anyhow!("a real broker has no faults on command")),
        }
    }

    fn relay(&self) -> Result<&Relay> {
        match &self.backend {
            Backend::Mock { relay, .. } => Ok(relay),
            Backend::Real(_) => Err(anyhow!("there is no relay before a real broker")),
        }
    }
}

/// The mock cluster stays on the thread that made it; orders are sent there.
struct Mock {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Mock {
    fn start() -> Result<Self> {
        let (orders, received) = mpsc::channel::<Order>();
        let (started, start) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let cluster = match Cluster::new(1) {
                Ok(cluster) => cluster,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(cluster.bootstrap_servers()));
            while let Ok(order) = received.recv() {
                order(&cluster);
            }
        });
        let address = start.recv().context("the mock cluster ended")?.context("the mock cluster did not start")?;
        let address = address.parse().with_context(|| format!("the mock cluster is at {address}"))?;
        Ok(Self { orders: Some(orders), thread: Some(thread), address })
    }

    fn ask<T: Send + 'static>(&self, order: impl FnOnce(&Cluster) -> T + Send + 'static) -> Result<T> {
        let (answer, answered) = mpsc::channel();
        let order: Order = Box::new(move |cluster| drop(answer.send(order(cluster))));
        let orders = self.orders.as_ref().context("the mock cluster is being dropped")?;
        orders.send(order).ok().context("the mock cluster ended")?;
        answered.recv().context("the mock cluster ended")
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
