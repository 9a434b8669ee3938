//! From a transaction on a real database through the dispatcher and Kafka to a Python consumer: every byte and header.
#![cfg(feature = "kafka")]

mod kafka_support;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kafka_support::Scene;
use postrider_core::{Dispatcher, Message};
use postrider_sinks::kafka::Compression;
use postrider_store::{Names, SqliteStore};
use serde::Deserialize;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const MESSAGES: usize = 250;

/// A record as the consumer prints it.
#[derive(Deserialize)]
struct Read {
    body: String,
    key: Option<String>,
    headers: BTreeMap<String, String>,
    timestamp: i64,
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
            let body = json!({ "number": at, "text": "naïve 🍷 \"quoted\"" });
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
    let message = message.header("colour", "rosé 🍷").header("x-size", format!("{at} Stück"));
    let message = match &key {
        Some(key) => message.key(key),
        None => message,
    };
    headers.extend([
        ("colour", "rosé 🍷".to_owned()),
        ("x-size", format!("{at} Stück")),
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

async fn consume(scene: &Scene, count: usize) -> Vec<Read> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/kafka.py");
    let ended = Command::new(python().await)
        // The directory of the script is none of modules: its name is that of one.
        .args(["-I", script, &scene.kafka.direct(), &scene.topic, &count.to_string(), "60"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("Python runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_byte_for_byte_at_a_python_consumer() {
    let scene = Scene::new(3).await;
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
    let store = SqliteStore::open_with(options.clone(), Names::default()).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let producers = SqlitePool::connect_with(options).await.expect("the file opens");

    let mut config = scene.config();
    config.compression = Compression::Gzip;
    config.timeout = Duration::from_secs(8);
    let client = postrider_sinks::KafkaClient::new(&config).expect("a client");
    let sink = client.sink(scene.topic.parse().expect("a destination")).expect("a sink");
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
    let read = consume(&scene, MESSAGES).await;
    stop.cancel();
    assert_eq!(running.await.expect("the dispatcher ends").abandoned, 0);

    for record in &read {
        let id: Uuid = record.headers["event_id"].parse().expect("an id");
        let expected = &expected[&id];
        assert_eq!(STANDARD.decode(&record.body).expect("base64"), expected.body);
        assert_eq!(record.key, expected.key);
        for (name, value) in &expected.headers {
            assert_eq!(record.headers.get(*name), Some(value), "{name}");
        }
        assert_eq!(record.headers.contains_key("key"), expected.key.is_some());
        let created = record.headers["created_at"].as_str();
        let created = time::OffsetDateTime::parse(created, &time::format_description::well_known::Rfc3339);
        let millis = created.expect("a time").unix_timestamp_nanos() / 1_000_000;
        assert_eq!(i128::from(record.timestamp), millis, "the record's time is that of the transaction");
    }
    let ids: std::collections::HashSet<_> = read.iter().map(|record| &record.headers["event_id"]).collect();
    assert_eq!(ids.len(), MESSAGES, "none is missing");
}
