//! A server of Pub/Sub with a topic of the test's own, behind a proxy.
#![allow(dead_code)] // each test binary uses some of it

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::Sink;
use postrider_sinks::kind::Binding;
use postrider_sinks::{Format, PubsubClient, PubsubConfig, SinkClient};
use testkit::brokers::pubsub::{Client, Fake, PROJECT, Server};
use testkit::sinks::Arrival;
use testkit::{Mode, Proxy};
use tokio::sync::{Mutex, OnceCell};

/// Which server.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The emulator if it is installed.
    Best,
    Fake,
}

/// The emulator is shared by all tests of a binary, because it takes seconds to start.
static BEST: OnceCell<Server> = OnceCell::const_new();
static TOPICS: AtomicUsize = AtomicUsize::new(0);

pub struct Place {
    pub fake: Option<Fake>,
    pub proxy: Proxy,
    pub topic: String,
    client: Client,
    subscriptions: AtomicUsize,
    arrived: Mutex<Vec<Arrival>>,
}

impl Place {
    pub async fn start(kind: Kind) -> Self {
        let fake = match kind {
            Kind::Fake => Some(Fake::start().await.expect("a fake")),
            Kind::Best => None,
        };
        let port = match &fake {
            Some(fake) => fake.port(),
            None => {
                let best = BEST.get_or_init(|| async { Server::start().await.expect("a server") }).await;
                println!("this test runs on {}", best.name());
                best.port()
            }
        };
        let place = Self {
            fake,
            proxy: Proxy::start(([127, 0, 0, 1], port).into()).await.expect("a proxy"),
            topic: format!("events-{}", TOPICS.fetch_add(1, Ordering::Relaxed)),
            client: Client::new(port).expect("a client"),
            subscriptions: AtomicUsize::new(0),
            arrived: Mutex::default(),
        };
        place.make_topic().await;
        place
    }

    pub fn fake(&self) -> &Fake {
        self.fake.as_ref().expect("the fake")
    }

    /// Settings for this server, however busy the machine is.
    pub fn config(&self, ordered: bool) -> PubsubConfig {
        let mut config = PubsubConfig::default();
        config.project = PROJECT.into();
        config.emulator = Some(self.proxy.address().to_string());
        config.ordering = ordered;
        config.connect_timeout = Duration::from_secs(30);
        config.timeout = Duration::from_secs(60);
        config
    }

    pub fn sink(&self, format: Format, ordered: bool) -> Arc<dyn Sink> {
        self.bind(&self.config(ordered), format)
    }

    pub fn bind(&self, config: &PubsubConfig, format: Format) -> Arc<dyn Sink> {
        let binding = Binding::to(self.topic.parse().expect("a destination")).format(format);
        PubsubClient::new(config).expect("a client").bind(binding).expect("a sink")
    }

    /// The topic, with a new subscription.
    pub async fn make_topic(&self) {
        let number = self.subscriptions.fetch_add(1, Ordering::Relaxed) + 1;
        self.client.create_topic(&self.topic).await.expect("a topic");
        self.client.subscribe(&self.topic, &format!("{}-{number}", self.topic)).await.expect("a subscription");
    }

    pub async fn remove_topic(&self) {
        self.client.delete_topic(&self.topic).await.expect("it was there");
    }

    /// Of the fake this is real; the emulator, which would forget everything, is cut off.
    pub fn stop(&self) {
        match &self.fake {
            Some(fake) => fake.stop(),
            None => self.proxy.set(Mode::Reset),
        }
    }

    pub fn restart(&self) {
        match &self.fake {
            Some(fake) => fake.restart().expect("it starts again"),
            None => self.proxy.set(Mode::Pass),
        }
    }

    /// The newest subscription.
    pub fn subscription(&self) -> String {
        format!("{}-{}", self.topic, self.subscriptions.load(Ordering::Relaxed))
    }

    /// All that has arrived.
    pub async fn arrivals(&self) -> Vec<Arrival> {
        let mut arrived = self.arrived.lock().await;
        loop {
            let pulled = self.client.pull(&self.subscription()).await.expect("a subscriber");
            if pulled.is_empty() {
                return arrived.clone();
            }
            arrived.extend(pulled.into_iter().map(|received| Arrival {
                body: received.data,
                headers: received.attributes,
                key: Some(received.key).filter(|key| !key.is_empty()),
            }));
        }
    }
}
