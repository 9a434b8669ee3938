use std::sync::Arc;
use std::time::Duration;

use consumers::kafka::{Settings, run};
use consumers::keep;
use postrider::Sink;
use postrider::sinks::{KafkaClient, KafkaConfig};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use testkit::brokers::kafka::Kafka as Server;
use tokio_util::sync::CancellationToken;

use super::{Broker, PAUSE, Subject, unique};

const GROUP: &str = "mailer";
const PARTITIONS: i32 = 2;

pub struct Kafka {
    server: Server,
    topic: String,
    /// In the same group, only to see its offsets.
    observer: Arc<BaseConsumer>,
}

impl Broker for Kafka {
    async fn start() -> Self {
        let server = Server::start().await.expect("Kafka");
        let topic = unique("orders");
        server.create_topic(&topic, PARTITIONS).await.expect("a topic");
        let observer = ClientConfig::new()
            .set("bootstrap.servers", server.direct())
            .set("group.id", GROUP)
            .create()
            .expect("a client");
        Self { server, topic, observer: Arc::new(observer) }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let mut config = KafkaConfig::default();
        config.brokers = vec![self.server.address()];
        let client = KafkaClient::new(&config).expect("a client");
        Arc::new(client.sink(self.topic.parse().expect("a destination")).expect("a sink"))
    }

    fn consume(&self, _: usize, consumer: Subject, stop: CancellationToken) -> impl Future<Output = ()> + 'static {
        let settings = Settings {
            brokers: self.server.direct(),
            topic: self.topic.clone(),
            group: GROUP.into(),
            session_timeout: Duration::from_secs(6),
        };
        async move { keep(&stop, PAUSE, || run(&consumer, &settings, stop.clone())).await }
    }

    async fn pending(&self) -> u64 {
        let (observer, topic) = (self.observer.clone(), self.topic.clone());
        let count = move || {
            let limit = Duration::from_secs(10);
            let mut all = TopicPartitionList::new();
            for partition in 0..PARTITIONS {
                all.add_partition(&topic, partition);
            }
            let committed = observer.committed_offsets(all, limit).expect("the offsets of the group");
            let behind = committed.elements().into_iter().map(|element| {
                let (low, high) = observer.fetch_watermarks(&topic, element.partition(), limit).expect("its ends");
                let reached = match element.offset() {
                    Offset::Offset(offset) => offset,
                    _ => low,
                };
                u64::try_from(high - reached).expect("no more than there is")
            });
            behind.sum()
        };
        tokio::task::spawn_blocking(count).await.expect("it ran")
    }
}
