//! The whole way of events: enqueued in a transaction, dispatched to a broker, read by consumers that share an inbox.
#![allow(dead_code, unused_imports)] // each test uses a part of it

mod amqp;
mod inbox;
mod kafka;
mod nats;
mod redis;
mod relay;
mod webhook;
mod work;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use consumers::{Consumer, Pause};
use postrider::Sink;
use postrider::inbox::{ConsumerName, Delivery};
use testkit::eventually;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use amqp::Amqp;
pub use inbox::Watched;
pub use kafka::Kafka;
pub use nats::{ACK_WAIT, Nats};
pub use redis::{Redis, STREAM};
pub use relay::{Outbox, Relay, stuttering};
pub use webhook::{LARGEST, SECRET, Webhook};
pub use work::Work;

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long an event waits until it comes again.
pub const PAUSE: Duration = Duration::from_millis(300);

pub type Subject = Consumer<Watched, Work>;

/// A broker, and a consumer of it.
pub trait Broker: Sized + Send + Sync + 'static {
    /// A broker with an empty destination.
    fn start() -> impl Future<Output = Self> + Send;

    /// The real sink on that destination.
    fn sink(&self) -> Arc<dyn Sink>;

    /// Consumes until it is stopped, as the process of that number.
    fn consume(
        &self,
        number: usize,
        consumer: Subject,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// How many messages the broker has that were not acknowledged.
    fn pending(&self) -> impl Future<Output = u64> + Send;
}

/// A consumer that runs, on threads of its own so that it can die like a process.
pub struct Running {
    runtime: Runtime,
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Asks it to stop.
    pub fn ask(&self) {
        self.stop.cancel();
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) {
        self.ask();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends in time").expect("it does not panic");
        self.runtime.shutdown_background();
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(self) {
        self.task.abort();
        self.runtime.shutdown_background();
        let _ = self.task.await;
    }
}

pub struct Scene<B> {
    pub broker: B,
    pub outbox: Outbox,
    pub inbox: Watched,
    pub work: Work,
}

impl<B: Broker> Scene<B> {
    pub async fn start() -> Self {
        Self {
            broker: B::start().await,
            outbox: Outbox::open().await,
            inbox: Watched::default(),
            work: Work::default(),
        }
    }

    pub fn subject(&self) -> Subject {
        let pause = Pause { shortest: PAUSE, longest: PAUSE, failed: PAUSE };
        Consumer::new(name(), self.inbox.clone(), self.work.clone()).pause(pause)
    }

    /// Starts a consumer.
    pub fn run(&self, number: usize) -> Running {
        self.run_subject(number, self.subject())
    }

    pub fn run_subject(&self, number: usize, subject: Subject) -> Running {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let stop = CancellationToken::new();
        let task = runtime.spawn(self.broker.consume(number, subject, stop.clone()));
        Running { runtime, task, stop }
    }

    pub fn relay(&self) -> Relay {
        self.outbox.relay(self.broker.sink())
    }

    /// Waits until each of them has had its effect.
    pub async fn done(&self, events: &[Uuid]) {
        eventually(PATIENCE, || async { events.iter().all(|event| self.work.effects(*event) > 0) }).await;
    }

    /// Waits until neither the relay nor the broker has anything left.
    pub async fn settled(&self) {
        eventually(PATIENCE, || async { self.outbox.is_empty().await && self.broker.pending().await == 0 }).await;
    }

    /// Waits for both, and checks that nothing had its effect twice.
    pub async fn each_once(&self, events: &[Uuid]) {
        self.done(events).await;
        self.settled().await;
        for event in events {
            assert_eq!(self.work.effects(*event), 1, "{event}");
        }
        assert_eq!(self.work.order().len(), events.len());
    }
}

pub fn name() -> ConsumerName {
    ConsumerName::new("mailer").expect("a plain name")
}

pub fn delivery(event: Uuid) -> Delivery {
    Delivery::new(name(), event)
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::now_v7())
}
