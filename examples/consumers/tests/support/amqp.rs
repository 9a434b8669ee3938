use std::sync::{Arc, OnceLock};

use consumers::amqp::{Settings, run};
use consumers::keep;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use postrider::Sink;
use postrider::sinks::setting::Secret;
use postrider::sinks::{AmqpClient, AmqpConfig};
use testkit::brokers::rabbitmq::{PASSWORD, RabbitMq, USER};
use tokio_util::sync::CancellationToken;

use super::{Broker, PAUSE, Subject, unique};

/// The server of this test binary, which takes long to start.
static SERVER: OnceLock<RabbitMq> = OnceLock::new();

pub struct Amqp {
    server: &'static RabbitMq,
    queue: String,
}

impl Amqp {
    fn url(&self) -> String {
        format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{}/%2f", self.server.port())
    }
}

impl Broker for Amqp {
    async fn start() -> Self {
        let start = || SERVER.get_or_init(|| RabbitMq::start(None).expect("RabbitMQ"));
        let server = tokio::task::spawn_blocking(start).await.expect("started");
        let broker = Self { server, queue: unique("orders") };
        let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.expect("connected");
        let channel = connection.create_channel().await.expect("a channel");
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(broker.queue.as_str().into(), options, FieldTable::default()).await.expect("a queue");
        broker
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let mut config = AmqpConfig::default();
        config.addresses = vec![format!("amqp://127.0.0.1:{}", self.server.port())];
        (config.user, config.password) = (USER.into(), Secret::new(PASSWORD));
        let client = AmqpClient::new(&config).expect("a client");
        Arc::new(client.sink(self.queue.parse().expect("a destination")).expect("a sink"))
    }

    fn consume(&self, _: usize, consumer: Subject, stop: CancellationToken) -> impl Future<Output = ()> + 'static {
        let settings = Settings { url: self.url(), queue: self.queue.clone(), at_once: 8 };
        async move { keep(&stop, PAUSE, || run(&consumer, &settings, stop.clone())).await }
    }

    /// Those that consumers have are counted too, which only the broker's own program can say.
    async fn pending(&self) -> u64 {
        let server = self.server;
        let said = tokio::task::spawn_blocking(|| server.control(&["-q", "list_queues", "name", "messages"]));
        let said = said.await.expect("it ran").expect("rabbitmqctl answers");
        let line = said.lines().find_map(|line| line.strip_prefix(&self.queue)).expect("the queue");
        line.trim().parse().expect("a count")
    }
}
