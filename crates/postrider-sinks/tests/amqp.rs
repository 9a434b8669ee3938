//! The sink amqp against a real RabbitMQ: the promises of every sink, and what is special to this broker.
#![cfg(feature = "amqp")]

#[path = "support/rabbit.rs"]
mod rabbit;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{ExchangeKind, types::ShortString};
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::setting::Secret;
use postrider_sinks::{AmqpClient, AmqpConfig, AmqpSink, Binding, Format, SinkClient};
use rabbit::{Plain, Shared, config, shared, unique};
use testkit::brokers::rabbitmq::READER;
use testkit::sinks::{Ability, Arrival, Broker, message, of_payload};
use testkit::{Mode, Proxy, eventually, quickly};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

const PATIENCE: Duration = Duration::from_secs(180);
const LIMIT: usize = 3_000_000;

/// Tests share the server; one that stops it, or makes it refuse everybody, waits until it has it alone.
static TURNS: RwLock<()> = RwLock::const_new(());

#[allow(dead_code)] // they are held, not read
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

struct OnRabbit {
    shared: &'static Shared,
    queue: String,
    proxy: Proxy,
    turn: Mutex<Option<Turn>>,
    seen: Mutex<(Option<Plain>, Vec<Arrival>)>,
}

async fn blocking<T: Send + 'static, E: std::fmt::Debug + Send + 'static>(
    task: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(task).await.expect("it ran").expect("it worked")
}

#[async_trait]
impl Broker for OnRabbit {
    async fn start() -> Self {
        let turn = Turn::Shared(TURNS.read().await);
        let shared = shared().await;
        let proxy = Proxy::start(([127, 0, 0, 1], shared.server.port()).into()).await.expect("a proxy");
        let queue = unique("conformance");
        let plain = Plain::connect(shared.server.port()).await;
        plain.declare(&queue).await;
        let (turn, seen) = (Mutex::new(Some(turn)), Mutex::new((Some(plain), Vec::new())));
        Self { shared, queue, proxy, turn, seen }
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = config(self.proxy.port());
        (config.timeout, config.connect_timeout) = (patience, patience);
        config.max_message_size = LIMIT;
        let binding = Binding::to(self.queue.parse().expect("a destination")).format(format);
        AmqpClient::new(&config).expect("a client").bind(binding).expect("a sink")
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let mut seen = self.seen.lock().await;
        if seen.0.is_none() {
            seen.0 = Plain::try_connect(self.shared.server.port()).await.ok();
        }
        let taken = match &seen.0 {
            Some(plain) => plain.take(&self.queue).await,
            None => Ok(Vec::new()),
        };
        match taken {
            Ok(taken) => seen.1.extend(taken),
            Err(_) => seen.0 = None,
        }
        seen.1.clone()
    }

    async fn stop(&self) {
        let mut turn = self.turn.lock().await;
        *turn = None;
        *turn = Some(Turn::Alone(TURNS.write().await));
        self.seen.lock().await.0 = None;
        let server = &self.shared.server;
        blocking(|| server.kill()).await;
    }

    async fn restart(&self) {
        let server = &self.shared.server;
        blocking(|| server.restart()).await;
    }

    async fn obstruct(&self) {
        Plain::connect(self.shared.server.port()).await.delete(&self.queue).await;
    }

    async fn clear(&self) {
        Plain::connect(self.shared.server.port()).await.declare(&self.queue).await;
    }

    async fn silence(&self) {
        self.proxy.set(Mode::HalfOpen);
    }

    async fn speak(&self) {
        self.proxy.set(Mode::Pass);
    }

    fn poison(&self) -> ClaimedMessage {
        let mut poison = message(0);
        poison.headers.insert("x".repeat(300), "too long for a name".into());
        poison
    }

    fn too_large(&self) -> usize {
        LIMIT
    }

    fn cannot(&self, _: Ability) -> Option<&'static str> {
        None
    }
}

testkit::sink_conformance!(OnRabbit);

/// A sink straight to the shared server.
async fn sink_on(change: impl FnOnce(&mut AmqpConfig), destination: &str) -> (RwLockReadGuard<'static, ()>, AmqpSink) {
    let turn = TURNS.read().await;
    let mut config = config(shared().await.server.port());
    change(&mut config);
    let client = AmqpClient::new(&config).expect("a client");
    (turn, client.sink(destination.parse().expect("a destination")).expect("a sink"))
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry { why, .. } | Outcome::Busy { why, .. } => why,
        Outcome::Unknown(why) | Outcome::Reject(why) | Outcome::Unsendable(why) => why,
        _ => "",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r51_what_no_queue_is_bound_for_is_not_delivered_and_its_neighbours_are() {
    let name = unique("routes");
    let (_turn, sink) = sink_on(|_| {}, &format!("{name}.{{topic}}")).await;
    let plain = Plain::connect(shared().await.server.port()).await;
    plain.declare(&format!("{name}.there")).await;
    // One confirm is for many messages: whose message was returned must not depend on luck.
    for _ in 0..5 {
        let mut batch: Vec<_> = (0..200).map(message).collect();
        for (at, message) in batch.iter_mut().enumerate() {
            message.topic = if at % 3 == 1 { "missing" } else { "there" }.into();
        }
        let outcomes = sink.publish(&batch).await;
        for (message, outcome) in batch.iter().zip(&outcomes) {
            match message.topic.as_str() {
                "there" => assert_eq!(*outcome, Outcome::Accepted),
                _ => assert!(matches!(outcome, Outcome::Retry { why, .. } if why.contains("no queue")), "{outcome:?}"),
            }
        }
        let arrived = plain.take(&format!("{name}.there")).await.expect("read");
        let expected = batch.iter().filter(|message| message.topic == "there").map(|message| Some(message.id));
        assert_eq!(arrived.iter().map(Arrival::id).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_a_missing_exchange_is_noticed_before_anything_is_sent() {
    let (exchange, queue) = (unique("exchange"), unique("queue"));
    let name = exchange.clone();
    let (_turn, sink) = sink_on(|config| config.exchange = name, "orders").await;
    let outcomes = sink.publish(&[message(1), message(2)]).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Retry { .. })), "{outcomes:?}");
    assert!(why(&outcomes[0]).contains("404"), "{outcomes:?}");
    assert!(sink.ready().await.expect_err("not ready").contains("404"));

    let plain = Plain::connect(shared().await.server.port()).await;
    let declare = async || {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let name = ShortString::from(exchange.as_str());
        plain
            .channel
            .exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default())
            .await
            .expect("declared");
        plain.declare(&queue).await;
        let bind = plain.channel.queue_bind(
            queue.as_str().into(),
            name,
            "orders".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bind.await.expect("bound");
    };
    declare().await;
    assert_eq!(sink.publish(&[message(1), message(2)]).await, [Outcome::Accepted, Outcome::Accepted]);
    assert_eq!(sink.ready().await, Ok(()));

    // It goes away under an open channel.
    plain.channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()).await.expect("deleted");
    let outcomes = sink.publish(&[message(3)]).await;
    assert!(matches!(outcomes.as_slice(), [Outcome::Retry { why, .. }] if why.contains("404")), "{outcomes:?}");
    declare().await;
    assert_eq!(sink.publish(&[message(3)]).await, [Outcome::Accepted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_who_may_not_write_or_not_log_in_comes_again() {
    let (_turn, sink) = sink_on(|config| config.user = READER.into(), "orders").await;
    let outcomes = sink.publish(&[message(1)]).await;
    assert!(matches!(outcomes.as_slice(), [Outcome::Retry { why, .. }] if why.contains("403")), "{outcomes:?}");
    let (_turn, sink) = sink_on(|config| config.password = Secret::new("canary-wrong"), "orders").await;
    let outcomes = sink.publish(&[message(1)]).await;
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Retry { why, .. }] if why.contains("user and password")),
        "{outcomes:?}"
    );
    let (_turn, sink) = sink_on(|config| config.vhost = "nowhere".into(), "orders").await;
    let outcomes = sink.publish(&[message(1)]).await;
    assert!(matches!(outcomes.as_slice(), [Outcome::Retry { why, .. }] if why.contains("530")), "{outcomes:?}");
    assert!(sink.ready().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_a_nack_comes_again() {
    let queue = unique("full");
    let (_turn, sink) = sink_on(|_| {}, &queue).await;
    let plain = Plain::connect(shared().await.server.port()).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    plain.declare_with(&queue, arguments).await;
    let outcomes = sink.publish(&[message(1), message(2), message(3)]).await;
    let nacks = outcomes.iter().filter(|outcome| why(outcome).contains("nack")).count();
    assert!(outcomes[0] == Outcome::Accepted && nacks >= 1, "{outcomes:?}");
    plain.take(&queue).await.expect("read");
    assert_eq!(sink.publish(&[message(4)]).await, [Outcome::Accepted], "the channel lives on");
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_a_quorum_queue_takes_messages_and_its_nack_comes_again() {
    let queue = unique("quorum");
    let (_turn, sink) = sink_on(|_| {}, &queue).await;
    let plain = Plain::connect(shared().await.server.port()).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(5));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    plain.declare_with(&queue, arguments).await;
    let first = message(0);
    assert_eq!(sink.publish(std::slice::from_ref(&first)).await, [Outcome::Accepted]);
    // It learns that it is full a little later, and then refuses.
    let accepted = std::sync::Mutex::new(vec![first.id]);
    eventually(PATIENCE, || async {
        let next = message(1);
        match sink.publish(std::slice::from_ref(&next)).await.remove(0) {
            Outcome::Accepted => accepted.lock().expect("not poisoned").push(next.id),
            refused => {
                assert!(why(&refused).contains("nack"), "{refused:?}");
                return true;
            }
        }
        false
    })
    .await;
    let accepted = accepted.into_inner().expect("not poisoned");
    let arrived: Vec<_> = plain.take(&queue).await.expect("read").iter().filter_map(Arrival::id).collect();
    assert_eq!(arrived, accepted, "exactly what was accepted is there");
    eventually(PATIENCE, || async { sink.publish(&[message(2)]).await == [Outcome::Accepted] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_what_is_too_large_for_the_broker_closes_the_channel_and_is_dead_alone() {
    let queue = unique("large");
    let (_turn, sink) = sink_on(|_| {}, &queue).await;
    let plain = Plain::connect(shared().await.server.port()).await;
    plain.declare(&queue).await;
    let large = of_payload(Payload::Bytes(vec![7; testkit::brokers::rabbitmq::MAX_MESSAGE_SIZE + 1]));
    let batch = [message(1), message(2), large, message(3)];
    let outcomes = sink.publish(&batch).await;
    let kinds: Vec<_> = outcomes.iter().map(Outcome::kind).collect();
    assert_eq!(kinds, ["accepted", "accepted", "reject", "accepted"], "{outcomes:?}");
    let arrived: Vec<_> = plain.take(&queue).await.expect("read").iter().filter_map(Arrival::id).collect();
    for sent in [&batch[0], &batch[1], &batch[3]] {
        assert!(arrived.contains(&sent.id), "{arrived:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_do_not_fit_into_a_frame_are_refused_and_break_nothing() {
    let queue = unique("frames");
    let (_turn, sink) = sink_on(|_| {}, &queue).await;
    let plain = Plain::connect(shared().await.server.port()).await;
    plain.declare(&queue).await;
    let mut wide = message(2);
    wide.headers.insert("colour".into(), "x".repeat(140_000));
    let mut fits = message(3);
    fits.headers.insert("colour".into(), "x".repeat(120_000));
    let outcomes = sink.publish(&[message(1), wide, fits, message(4)]).await;
    let kinds: Vec<_> = outcomes.iter().map(Outcome::kind).collect();
    assert_eq!(kinds, ["accepted", "unsendable", "accepted", "accepted"], "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_a_broker_with_an_alarm_gets_nothing_and_no_message_loses_an_attempt() {
    let queue = unique("alarm");
    let turn = TURNS.write().await;
    let server = &shared().await.server;
    let mut config = config(server.port());
    (config.timeout, config.connect_timeout) = (Duration::from_secs(3), Duration::from_secs(3));
    let sink = AmqpClient::new(&config).expect("a client").sink(queue.parse().expect("a destination")).expect("a sink");
    Plain::connect(server.port()).await.declare(&queue).await;
    eventually(PATIENCE, || async { sink.publish(&[message(1)]).await == [Outcome::Accepted] }).await;
    blocking(|| server.control(&["set_vm_memory_high_watermark", "0.00001"])).await;
    // The broker tells of it when somebody publishes.
    eventually(PATIENCE, || async {
        let outcomes = sink.publish(&[message(2)]).await;
        matches!(outcomes.as_slice(), [Outcome::Busy { after, .. }] if *after >= Duration::from_secs(1))
    })
    .await;
    // It knows without asking; an answer to that would not come.
    let ready = quickly(Duration::from_secs(1), || sink.ready()).await;
    assert!(ready.expect_err("not ready").contains("alarm"));
    blocking(|| server.control(&["set_vm_memory_high_watermark", "0.4"])).await;
    eventually(PATIENCE, || async { sink.ready().await.is_ok() }).await;
    eventually(PATIENCE, || async { sink.publish(&[message(3)]).await == [Outcome::Accepted] }).await;
    drop(turn);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified() {
    let queue = unique("tls");
    let _turn = TURNS.read().await;
    let shared = shared().await;
    Plain::connect(shared.server.port()).await.declare(&queue).await;
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file
    };
    let (right, wrong) = (file(&shared.authority), file(&rabbit::certificates("localhost").0));
    let publish = async |host: &str, authority: Option<&tempfile::NamedTempFile>| {
        let mut config = config(0);
        config.addresses = vec![format!("amqps://{host}:{}", shared.server.tls_port())];
        config.tls.ca_file = authority.map(|file| file.path().to_owned());
        let sink = AmqpClient::new(&config).expect("a client").sink(queue.parse().expect("a destination"));
        sink.expect("a sink").publish(&[message(1)]).await.remove(0)
    };
    assert_eq!(publish("localhost", Some(&right)).await, Outcome::Accepted);
    for refused in [
        publish("localhost", Some(&wrong)).await,
        publish("localhost", None).await,
        publish("127.0.0.1", Some(&right)).await,
    ] {
        assert!(matches!(&refused, Outcome::Retry { why, .. } if why.contains("certificate")), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_nobody_waits_for_any_more_wedges_nothing() {
    let _turn = TURNS.read().await;
    let shared = shared().await;
    let queue = unique("dropped");
    let plain = Plain::connect(shared.server.port()).await;
    plain.declare(&queue).await;
    let proxy = Proxy::start(([127, 0, 0, 1], shared.server.port()).into()).await.expect("a proxy");
    let mut config = config(proxy.port());
    (config.channels, config.timeout, config.connect_timeout) = (1, Duration::from_secs(5), Duration::from_secs(2));
    let sink = Arc::new(AmqpClient::new(&config).expect("a client").sink(queue.parse().expect("one")).expect("a sink"));
    eventually(PATIENCE, || async { sink.publish(&[message(1)]).await == [Outcome::Accepted] }).await;
    proxy.set(Mode::Blackhole);
    for _ in 0..5 {
        let batch: Vec<_> = (0..50).map(message).collect();
        let cut = tokio::time::timeout(Duration::from_millis(50), sink.publish(&batch)).await;
        assert!(cut.as_ref().map_or(true, |outcomes| !outcomes.contains(&Outcome::Accepted)), "{cut:?}");
    }
    proxy.set(Mode::Pass);
    eventually(PATIENCE, || async { sink.publish(&[message(2)]).await == [Outcome::Accepted] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_that_are_cut_off_cost_their_neighbours_nothing() {
    let _turn = TURNS.read().await;
    let shared = shared().await;
    let queue = unique("cut");
    let plain = Plain::connect(shared.server.port()).await;
    plain.declare(&queue).await;
    let proxy = Proxy::start(([127, 0, 0, 1], shared.server.port()).into()).await.expect("a proxy");
    let client = AmqpClient::new(&config(proxy.port())).expect("a client");
    let sink = Arc::new(client.sink(queue.parse().expect("one")).expect("a sink"));
    assert_eq!(sink.publish(&[message(1)]).await, [Outcome::Accepted]);
    let (neighbour, stop) = (sink.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stopped = stop.clone();
    let neighbour = tokio::spawn(async move {
        let mut outcomes = Vec::new();
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            outcomes.extend(neighbour.publish(&[message(2)]).await);
        }
        outcomes
    });
    // More than fits into sockets, so that a part is still to be written when nobody waits any more.
    let large: Vec<_> = (0..50).map(|_| of_payload(Payload::Bytes(vec![7; 400_000]))).collect();
    let mut cut = 0;
    for milliseconds in [1, 2, 5, 10, 20] {
        let published = tokio::time::timeout(Duration::from_millis(milliseconds), sink.publish(&large)).await;
        cut += usize::from(published.is_err());
    }
    assert!(cut > 0, "all were too fast");
    eventually(PATIENCE, || async { sink.publish(&[message(3)]).await == [Outcome::Accepted] }).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let outcomes = neighbour.await.expect("it ran");
    assert!(!outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == Outcome::Accepted), "{outcomes:?}");
    assert_eq!(proxy.connections(), 1, "the connection is the same");
}
