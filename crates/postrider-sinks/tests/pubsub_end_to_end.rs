//! From a transaction on a real database through the dispatcher and Pub/Sub to a Python consumer: every byte and header.
#![cfg(feature = "pubsub")]

mod pubsub_support;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Dispatcher, Message, Order};
use postrider_sinks::PubsubSink;
use postrider_store::{Names, SqliteStore};
use pubsub_support::{Kind, Place};
use serde::Deserialize;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use testkit::brokers::pubsub::PROJECT;
use testkit::eventually;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use uuid::Uuid;

const MESSAGES: usize = 250;

/// A message as the consumer prints it.
#[derive(Deserialize)]
struct Read {
    body: String,
    key: String,
    headers: BTreeMap<String, String>,
}

impl Read {
    /// A header, put together if it came in parts.
    fn header(&self, name: &str) -> Option<String> {
        let part = |number: usize| self.headers.get(&format!("postrider-part-{number}-{name}")).map(String::as_str);
        let whole: String = (0..).map_while(part).collect();
        self.headers.get(name).cloned().or(Some(whole).filter(|whole| !whole.is_empty()))
    }
}

/// What must arrive.
struct Expected {
    body: Vec<u8>,
    key: Option<String>,
    headers: BTreeMap<&'static str, String>,
}

fn message(at: usize) -> (Message, Expected) {
    let mut headers = BTreeMap::from([("namespace", "shop".to_owned()), ("topic", "order.placed".to_owned())]);
    let (message, body) = match at % 3 {
        _ if at == 0 => {
            let large = "x".repeat(999_000);
            (Message::json("shop", "order.placed", &large), json!(large).to_string().into_bytes())
        }
        0 => {
            let body = json!({ "number": at, "text": "naïve 🍷 \t \"quoted\"" });
            (Message::json("shop", "order.placed", &body), body.to_string().into_bytes())
        }
        1 => {
            let body: Vec<u8> = (0..at).map(|byte| (byte % 256) as u8).collect();
            headers.insert("content-type", "application/x-canary".into());
            (Message::bytes("shop", "order.placed", "application/x-canary", body.clone()), body)
        }
        _ => (Message::json("shop", "order.placed", &at), at.to_string().into_bytes()),
    };
    let key = (!at.is_multiple_of(4)).then(|| format!("schlüssel-{}", at % 11));
    let long = "größer 🍷 ".repeat(200);
    let message = message.header("colour", "rosé 🍷").header("size", format!("{at} 尺")).header("long", &long);
    let message = match &key {
        Some(key) => message.key(key),
        None => message,
    };
    headers.extend([
        ("colour", "rosé 🍷".to_owned()),
        ("size", format!("{at} 尺")),
        ("long", long),
        ("event_id", message.id().to_string()),
    ]);
    headers.extend(key.clone().map(|key| ("key", key)));
    (message, Expected { body, key, headers })
}

async fn python() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/python-env");
    let made = Command::new(script).output().await.expect("scripts/python-env runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("a path").trim().to_owned()
}

async fn consume(place: &Place, count: usize) -> Vec<Read> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/pubsub.py");
    let ended = Command::new(python().await)
        .args([script, PROJECT, &place.subscription(), &count.to_string(), "180"])
        .env("PUBSUB_EMULATOR_HOST", place.proxy.address().to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("Python runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn everything_arrives(kind: Kind, ordered: bool) {
    let place = Place::start(kind).await;
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
    let store = SqliteStore::open_with(options.clone(), Names::default()).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let producers = SqlitePool::connect_with(options).await.expect("the file opens");

    let config = place.config(ordered);
    let sink = PubsubSink::connect(&config, place.topic.parse().expect("a destination")).expect("a sink");
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder(store.clone(), sink).build().expect("a dispatcher");
    let running = tokio::spawn(dispatcher.run(stop.clone()));

    let mut expected = BTreeMap::new();
    for at in 0..MESSAGES {
        let (message, what) = message(at);
        expected.insert(message.id(), what);
        let mut transaction = producers.begin().await.expect("a transaction");
        store.outbox().enqueue(&mut transaction, message).await.expect("enqueued");
        transaction.commit().await.expect("committed");
    }
    let read = consume(&place, MESSAGES).await;
    stop.cancel();
    let _ = running.await.expect("the dispatcher ends");

    for record in &read {
        let id: Uuid = record.headers["event_id"].parse().expect("an id");
        let expected = &expected[&id];
        assert_eq!(STANDARD.decode(&record.body).expect("base64"), expected.body);
        assert_eq!(record.key, expected.key.clone().filter(|_| ordered).unwrap_or_default());
        for (name, value) in &expected.headers {
            assert_eq!(record.header(name).as_ref(), Some(value), "{name}");
        }
        assert_eq!(record.headers.contains_key("key"), expected.key.is_some());
    }
    let ids: HashSet<_> = read.iter().map(|record| &record.headers["event_id"]).collect();
    assert_eq!(ids.len(), MESSAGES, "none is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_byte_for_byte_at_a_python_consumer() {
    everything_arrives(Kind::Best, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_by_way_of_the_fake_as_well() {
    everything_arrives(Kind::Fake, false).await;
}

/// Many messages of a key are in one call, because the sink keeps their order.
#[tokio::test(flavor = "multi_thread")]
async fn r59_t25_a_key_arrives_in_its_order_through_failures() {
    let place = Place::start(Kind::Fake).await;
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
    let store = SqliteStore::open_with(options.clone(), Names::default()).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let producers = SqlitePool::connect_with(options).await.expect("the file opens");
    let outbox = store.outbox().clone();
    let enqueue = async |numbers: Range<u32>| {
        let mut transaction = producers.begin_with("begin immediate").await.expect("a transaction");
        for number in numbers {
            let message = Message::json("shop", "order.placed", &number).key("k");
            outbox.enqueue(&mut transaction, message).await.expect("enqueued");
        }
        transaction.commit().await.expect("committed");
    };

    let mut config = place.config(true);
    config.batch_messages = 10;
    let sink = PubsubSink::connect(&config, place.topic.parse().expect("a destination")).expect("a sink");
    let dispatcher = Dispatcher::builder(store, sink).order(Order::Key);
    let dispatcher = dispatcher.backoff(Duration::from_millis(5), Duration::from_millis(20));
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.build().expect("a dispatcher").run(stop.clone()));
    let patience = Duration::from_secs(180);
    let refused = || place.fake().requests().iter().filter(|request| !request.accepted).count();
    for (part, code) in [Code::Unavailable, Code::DeadlineExceeded, Code::PermissionDenied].into_iter().enumerate() {
        // The fault is there before the messages are, so that one of them meets it.
        place.fake().fail("k", code, 1);
        let first = u32::try_from(part).expect("a number") * 50;
        enqueue(first..first + 50).await;
        eventually(patience, || async { refused() == part + 1 }).await;
    }
    let numbers = async || {
        let arrivals = place.arrivals().await;
        arrivals.iter().map(|arrival| serde_json::from_slice(&arrival.body).expect("a number")).collect::<Vec<u32>>()
    };
    eventually(patience, || async { numbers().await.len() >= 150 }).await;
    stop.cancel();
    let _ = running.await.expect("the dispatcher ends");
    assert_eq!(numbers().await, (0..150).collect::<Vec<_>>());
    assert_eq!(refused(), 3, "each failure was met once");
    let requests = place.fake().requests();
    assert!(requests.len() < 50, "{} requests, with ten messages each", requests.len());
}
