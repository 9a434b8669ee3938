use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use consumers::keep;
use consumers::nats::{Settings, run};
use postrider::Sink;
use postrider::sinks::{NatsConfig, NatsSink};
use testkit::brokers::nats::Nats as Server;
use tokio_util::sync::CancellationToken;

use super::{Broker, PAUSE, Subject};

const STREAM: &str = "SHOP";
const DURABLE: &str = "mailer";
/// After this time the server takes what was not acknowledged from a consumer.
pub const ACK_WAIT: Duration = Duration::from_secs(6);

pub struct Nats {
    server: Server,
    context: Context,
}

impl Broker for Nats {
    async fn start() -> Self {
        let server = Server::start().await.expect("NATS");
        let context = jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
        // The server knows duplicates itself for a while; it must not be the one who does.
        let duplicate_window = Duration::from_millis(100);
        let subjects = vec!["shop.>".into()];
        let config = stream::Config { name: STREAM.into(), subjects, duplicate_window, ..stream::Config::default() };
        context.create_stream(config).await.expect("a stream");
        Self { server, context }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let mut config = NatsConfig::default();
        config.servers = vec![self.server.url()];
        config.stream = Some(STREAM.into());
        Arc::new(NatsSink::new(&config, "shop.{topic}".parse().expect("a destination")).expect("a sink"))
    }

    fn consume(&self, _: usize, consumer: Subject, stop: CancellationToken) -> impl Future<Output = ()> + 'static {
        let (url, stream, durable) = (self.server.url(), STREAM.into(), DURABLE.into());
        let settings = Settings { url, stream, durable, at_once: 8, ack_wait: ACK_WAIT };
        async move { keep(&stop, PAUSE, || run(&consumer, &settings, stop.clone())).await }
    }

    async fn pending(&self) -> u64 {
        let stream = self.context.get_stream(STREAM).await.expect("the stream");
        let info = stream.consumer_info(DURABLE).await.expect("the consumer");
        info.num_pending + u64::try_from(info.num_ack_pending).expect("a count")
    }
}
