//! The sink sqs against moto: the promises of every sink, on queues with and without order, and what is special to SQS.
#![cfg(feature = "sqs")]

#[path = "support/aws.rs"]
mod aws;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws::{Queue, access, shared, unique};
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::{Binding, Format, SinkClient, SqsClient, SqsConfig};
use testkit::sinks::{Ability, Arrival, Broker, message, of_payload};
use testkit::{Mode, Proxy};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

const LIMIT: usize = 1_048_576;

/// Tests share the server, two at a time because it is slow; one that stops it waits until it has it alone.
static TURNS: RwLock<()> = RwLock::const_with_max_readers((), 2);

#[allow(dead_code)] // they are held, not read
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

struct OnMoto<const FIFO: bool> {
    queue: Queue,

    proxy: Proxy,
    turn: Mutex<Option<Turn>>,
    seen: Arc<Mutex<Vec<Arrival>>>,
}

fn config(port: u16) -> SqsConfig {
    let mut config = SqsConfig::default();
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

        Self { queue, proxy, turn: Mutex::new(Some(turn)), seen }
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let destination = self.queue.name.parse().expect("a destination");
        let mut config = config(self.proxy.port());
        (config.timeout, config.connect_timeout) = (patience, patience);
        // Of a group one message is sent after the other.
        config.max_batch = if FIFO { 5 } else { 100 };
        let client = SqsClient::new(&config).expect("a client");
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

    /// It has forgotten everything, so the queue is made again.
    async fn restart(&self) {
        let moto = shared().await;
        tokio::task::spawn_blocking(|| moto.restart()).await.expect("it ran").expect("restarted");
        self.queue.create_again().await;
    }

    async fn obstruct(&self) {
        self.queue.delete().await;
    }

    async fn clear(&self) {
        self.queue.create_again().await;
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
            Ability::Order if !FIFO => Some("a standard queue keeps no order"),

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

fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_may_be_an_address_and_what_comes_from_messages_is_a_name() {
    let _turn = TURNS.read().await;
    let moto = shared().await;
    let queue = Queue::create(moto.port(), &unique("address")).await;
    let client = SqsClient::new(&config(moto.port())).expect("a client");
    let by_address = client.sink(queue.url.parse().expect("a destination")).expect("a sink");
    assert_eq!(by_address.publish(&[message(1)]).await, [Outcome::Accepted]);
    assert_eq!(by_address.ready().await, Ok(()));
    let by_topic = client.sink("{topic}".parse().expect("a destination")).expect("a sink");
    let topics = [queue.name.as_str(), "no-such-queue", "a.fifo", "a/b", "", "order placed"];
    let batch = topics.map(|topic| {
        let mut message = message(2);
        message.topic = topic.into();
        message
    });
    let outcomes = by_topic.publish(&batch).await;
    assert_eq!(kinds(&outcomes), ["accepted", "retry", "unsendable", "unsendable", "unsendable", "unsendable"]);
    assert!(matches!(&outcomes[1], Outcome::Retry { why, .. } if why.contains("create the queue")), "{outcomes:?}");
    assert_eq!(by_topic.ready().await, Ok(()));
    assert_eq!(queue.take().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_together_are_split_by_bytes() {
    let _turn = TURNS.read().await;
    let moto = shared().await;
    let queue = Queue::create(moto.port(), &unique("bytes")).await;
    let client = SqsClient::new(&config(moto.port())).expect("a client");
    let sink = client.sink(queue.name.parse().expect("a destination")).expect("a sink");
    // Ten of these are more than a request may have.
    let batch: Vec<_> = (0..10).map(|_| of_payload(Payload::Json(format!("\"{}\"", "x".repeat(300_000))))).collect();
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Accepted; 10]);
    assert_eq!(queue.take().await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_what_the_service_itself_refuses_is_dead_alone() {
    let _turn = TURNS.read().await;
    let moto = shared().await;
    let queue = Queue::create(moto.port(), &unique("refused")).await;
    let mut config = config(moto.port());
    // So the sink lets it through, and the service has the last word.
    config.max_message_size = 4 * LIMIT;
    let sink = SqsClient::new(&config).expect("a client").sink(queue.name.parse().expect("one")).expect("a sink");
    let large = of_payload(Payload::Json(format!("\"{}\"", "x".repeat(LIMIT + 1))));
    let batch = [message(1), large, message(2)];
    assert_eq!(kinds(&sink.publish(&batch).await), ["accepted", "reject", "accepted"]);
    let arrived: Vec<_> = queue.take().await.iter().filter_map(Arrival::id).collect();
    assert!(arrived.contains(&batch[0].id) && arrived.contains(&batch[2].id) && arrived.len() == 2, "{arrived:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_apart_from_no_answer() {
    let _turn = TURNS.read().await;
    let closed = testkit::free_port().expect("a port");
    let mut config = config(closed);
    (config.timeout, config.connect_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    let destination = "https://sqs.example.com/1/orders";
    let sink = SqsClient::new(&config).expect("a client").sink(destination.parse().expect("one")).expect("a sink");
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

    let client = SqsClient::new(&config(moto.port())).expect("a client");
    let sink = client.sink(queue.name.parse().expect("a destination")).expect("a sink");
    let mut sent = message(1);
    sent.key = Some("Grüße, a key that can be no group".into());
    for _ in 0..2 {
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
    }
    let arrived = queue.take().await;
    assert_eq!(arrived.iter().map(Arrival::id).collect::<Vec<_>>(), [Some(sent.id)]);
    assert_eq!(arrived[0].key, sent.key);
}
