use std::sync::Arc;

use consumers::keep;
use consumers::redis_streams::{Settings, run};
use postrider::Sink;
use postrider::sinks::{RedisConfig, RedisSink};
use redis::aio::MultiplexedConnection;
use redis::streams::StreamInfoGroupsReply;
use redis::{AsyncCommands, AsyncConnectionConfig};
use testkit::brokers::redis::Redis as Server;
use tokio_util::sync::CancellationToken;

use super::{Broker, PATIENCE, PAUSE, Subject};

pub const STREAM: &str = "orders";
const GROUP: &str = "mailer";

pub struct Redis {
    pub server: Server,
    pub observer: MultiplexedConnection,
}

impl Broker for Redis {
    async fn start() -> Self {
        let server = Server::start().await.expect("Redis");
        let client = redis::Client::open(server.url()).expect("an address");
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE));
        let observer = client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
        Self { server, observer }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let mut config = RedisConfig::default();
        config.urls = vec![self.server.url()];
        Arc::new(RedisSink::new(&config, STREAM.parse().expect("a destination")).expect("a sink"))
    }

    fn consume(&self, number: usize, consumer: Subject, stop: CancellationToken) -> impl Future<Output = ()> + 'static {
        let (url, member) = (self.server.url(), format!("process-{number}"));
        let settings = Settings { url, stream: STREAM.into(), group: GROUP.into(), member, at_once: 8, idle: PAUSE };
        async move { keep(&stop, PAUSE, || run(&consumer, &settings, stop.clone())).await }
    }

    async fn pending(&self) -> u64 {
        let reply: StreamInfoGroupsReply = self.observer.clone().xinfo_groups(STREAM).await.expect("the groups");
        let group = reply.groups.iter().find(|group| group.name == GROUP).expect("the group");
        let lag = group.lag.expect("nothing was removed from the stream");
        u64::try_from(group.pending + lag).expect("a count")
    }
}
