//! The sink sns against moto: the promises of every sink, on topics with and without order, and what is special to SNS.
//! What was sent is read from a queue that is subscribed to the topic, with raw delivery.
#![cfg(all(feature = "sns", feature = "sqs"))]

#[path = "support/aws.rs"]
mod aws;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws::{Queue, access, shared, unique};
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::{Binding, Format, SinkClient, SnsClient, SnsConfig};
use testkit::sinks::{Ability, Arrival, Broker, message, of_payload};
use testkit::{Mode, Proxy};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

const LIMIT: usize = 262_144;

/// Tests share the server, two at a time because it is slow; one that stops it waits until it has it alone.
static TURNS: RwLock<()> = RwLock::const_with_max_readers((), 2);

#[allow(dead_code)] // they are held, not read
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

struct OnMoto<const FIFO: bool> {
    queue: Queue,
    topic: Topic,
    proxy: Proxy,
    turn: Mutex<Option<Turn>>,
    seen: Arc<Mutex<Vec<Arrival>>>,
}

/// A topic, and a client that is not the sink's.
struct Topic {
    client: aws_sdk_sns::Client,
    name: String,
    arn: String,
}

impl Topic {
    async fn create(port: u16, name: &str, queue: &Queue) -> Self {
        let client = aws_sdk_sns::Client::new(&aws::plain(port).await);
        let topic = Self { client, name: name.into(), arn: String::new() };
        let arn = topic.create_again(queue).await;
        Self { arn, ..topic }
    }

    async fn create_again(&self, queue: &Queue) -> String {
        let mut request = self.client.create_topic().name(&self.name);
        if self.name.ends_with(".fifo") {
            request = request.attributes("FifoTopic", "true");
        }
        let arn = request.send().await.expect("created").topic_arn().expect("an ARN").to_owned();
        let subscribe = self.client.subscribe().topic_arn(&arn).protocol("sqs").endpoint(queue.arn().await);
        subscribe.attributes("RawMessageDelivery", "true").send().await.expect("subscribed");
        arn
    }

    async fn delete(&self) {
        self.client.delete_topic().topic_arn(&self.arn).send().await.expect("deleted");
    }
}

fn config(port: u16) -> SnsConfig {
    let mut config = SnsConfig::default();
    config.aws = access(port);
    config
}

#[async_trait]
impl<const FIFO: bool> Broker for OnMoto<FIFO> {
    async fn start() -> Self {
        let turn = Turn::Shared(TURNS.read().await);
        let moto = shared().await;
        let proxy = Proxy::start(([127, 0, 0, 1], moto.port()).into()).await.expect("a proxy");
        let name = unique("conformance") + if FIFO { ".fifo" } else { "" };
        let queue = Queue::create(moto.port(), &name).await;
        let seen = queue.read();
        let topic = Topic::create(moto.port(), &name, &queue).await;
        Self { queue, topic, proxy, turn: Mutex::new(Some(turn)), seen }
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let destination = self.topic.arn.parse().expect("a destination");
        let mut config = config(self.proxy.port());
        (config.timeout, config.connect_timeout) = (patience, patience);
        // Of a group one message is sent after the other.
        config.max_batch = if FIFO { 5 } else { 100 };
        let client = SnsClient::new(&config).expect("a client");
        client.bind(Binding::to(destination).format(format)).expect("a sink")
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.seen.lock().await.clone()
    }

    async fn stop(&self) {
        let mut turn = self.turn.lock().await;
        *turn = None;
        *turn = Some(Turn::Alone(TURNS.write().await));
        let moto = shared().await;
        tokio::task::spawn_blocking(|| moto.kill()).await.expect("it ran").expect("killed");
    }

    /// It has forgotten everything, so the topic is made again.
    async fn restart(&self) {
        let moto = shared().await;
        tokio::task::spawn_blocking(|| moto.restart()).await.expect("it ran").expect("restarted");
        self.queue.create_again().await;
        self.topic.create_again(&self.queue).await;
    }

    async fn obstruct(&self) {
        self.topic.delete().await;
    }

    async fn clear(&self) {
        self.topic.create_again(&self.queue).await;
    }

    async fn silence(&self) {
        self.proxy.set(Mode::HalfOpen);
    }

    async fn speak(&self) {
        self.proxy.set(Mode::Pass);
    }

    fn poison(&self) -> ClaimedMessage {
        of_payload(Payload::Bytes(Vec::new()))
    }

    fn too_large(&self) -> usize {
        LIMIT
    }

    fn cannot(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Order if !FIFO => Some("a standard topic keeps no order"),
            Ability::Megabyte => Some("SNS takes 256 KiB"),
            _ => None,
        }
    }
}

mod standard {
    use super::*;
    testkit::sink_conformance!(OnMoto<false>);
}

mod fifo {
    use super::*;
    testkit::sink_conformance!(OnMoto<true>);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_apart_from_no_answer() {
    let _turn = TURNS.read().await;
    let closed = testkit::free_port().expect("a port");
    let mut config = config(closed);
    (config.timeout, config.connect_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    let destination = "arn:aws:sns:eu-central-1:123456789012:orders";
    let sink = SnsClient::new(&config).expect("a client").sink(destination.parse().expect("one")).expect("a sink");
    let outcomes = sink.publish(&[message(1)]).await;
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Retry { why, .. }] if why.contains("nothing was sent")),
        "{outcomes:?}"
    );
    let why = sink.ready().await.expect_err("not ready");
    assert!(!format!("{outcomes:?} {why} {sink:?}").contains("canary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_again_is_dropped_where_order_is_kept() {
    let _turn = TURNS.read().await;
    let moto = shared().await;
    let name = unique("again") + ".fifo";
    let queue = Queue::create(moto.port(), &name).await;
    let topic = Topic::create(moto.port(), &name, &queue).await;
    let client = SnsClient::new(&config(moto.port())).expect("a client");
    let sink = client.sink(topic.arn.parse().expect("a destination")).expect("a sink");
    let mut sent = message(1);
    sent.key = Some("Grüße, a key that can be no group".into());
    for _ in 0..2 {
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
    }
    let arrived = queue.take().await;
    assert_eq!(arrived.iter().map(Arrival::id).collect::<Vec<_>>(), [Some(sent.id)]);
    assert_eq!(arrived[0].key, sent.key);
}
