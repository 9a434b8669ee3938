use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use consumers::signature::Secrets;
use consumers::webhook::{Settings, run};
use postrider::Sink;
use postrider::sinks::setting::Secret;
use postrider::sinks::{HttpClient, HttpConfig};
use tokio_util::sync::CancellationToken;

use super::{Broker, Subject};

/// What requests are signed with.
pub const SECRET: &str = "whsec_Y2FuYXJ5IGNhbmFyeSBjYW5hcnkgY2FuYXJ5";
/// The largest body that is taken.
pub const LARGEST: usize = 64 * 1024;

/// Processes share one socket, as they would share a load balancer.
pub struct Webhook {
    listener: TcpListener,
    /// What receivers check with.
    pub secrets: Vec<String>,
    /// What the sink signs with.
    pub keys: Vec<String>,
    /// How long the sink waits for an answer.
    pub timeout: Duration,
}

impl Webhook {
    pub fn url(&self) -> String {
        format!("http://{}/hooks", self.listener.local_addr().expect("its address"))
    }
}

impl Broker for Webhook {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it is a socket");
        let (secrets, keys) = (vec![SECRET.into()], vec![SECRET.into()]);
        Self { listener, secrets, keys, timeout: Duration::from_secs(2) }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let mut config = HttpConfig::default();
        config.allow_addresses = vec!["127.0.0.1".into()];
        config.signing_keys = self.keys.iter().map(Secret::new).collect();
        (config.connect_timeout, config.timeout) = (Duration::from_secs(1), self.timeout);
        (config.breaker_failures, config.concurrency) = (1_000_000, 32);
        let client = HttpClient::new(&config).expect("a client");
        Arc::new(client.sink(self.url().parse().expect("a destination")).expect("a sink"))
    }

    fn consume(&self, _: usize, consumer: Subject, stop: CancellationToken) -> impl Future<Output = ()> + 'static {
        let listener = self.listener.try_clone().expect("one more");
        let secrets = Secrets::new(&self.secrets).expect("secrets");
        let settings = Settings { path: "/hooks".into(), secrets, largest_body: LARGEST };
        async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it is a socket");
            run(Arc::new(consumer), &settings, listener, stop).await.expect("it ends well");
        }
    }

    /// There is nobody between the relay and the consumer.
    async fn pending(&self) -> u64 {
        0
    }
}
