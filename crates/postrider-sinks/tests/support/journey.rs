//! The whole way of messages: a producer's transaction, the dispatcher, a sink, and a consumer in another language.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Dispatcher, Message, Sink};
use postrider_store::{Names, Outbox, PostgresStore};
use serde_json::{Value, json};
use testkit::brokers::moto::python;
use uuid::Uuid;

/// What a message must look like where it arrives.
pub struct Expected {
    pub body: Vec<u8>,
    pub headers: BTreeMap<String, String>,
}

/// A message of every kind, and what must become of it. `large` is the size of every fiftieth.
fn made(number: usize, large: usize) -> (Message, Expected) {
    let colour = format!("rosé 🍷 {number}");
    let (message, body, content_type) = match number % 50 {
        49 => {
            let value = json!("x".repeat(large));
            (Message::json("shop", "order.placed", &value), value.to_string().into_bytes(), "application/json")
        }
        n if n % 3 == 0 => {
            let bytes: Vec<u8> = (0..=255).cycle().skip(number).take(300).collect();
            (
                Message::bytes("shop", "order.placed", "application/x-canary", bytes.clone()),
                bytes,
                "application/x-canary",
            )
        }
        _ => {
            let value = json!({ "number": number, "name": "Grüße, 東京" });
            (Message::json("shop", "order.placed", &value), value.to_string().into_bytes(), "application/json")
        }
    };
    let key = format!("order-{}", number % 7);
    let message = message.key(key.clone()).header("colour", colour.clone()).header("event-type", "order_placed");
    let headers = [
        ("event_id", message.id().to_string()),
        ("event_type", "order_placed".into()),
        ("namespace", "shop".into()),
        ("topic", "order.placed".into()),
        ("key", key),
        ("content-type", content_type.into()),
        ("attempt", "1".into()),
        ("colour", colour),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).into();
    (message, Expected { body, headers })
}

/// Enqueues so many messages in transactions and runs a dispatcher until the consumer has read them all; compares every
/// byte and header.
pub async fn journey(sink: Arc<dyn Sink>, count: usize, large: usize, script: &str, arguments: &[&str]) -> Vec<Value> {
    let database = testkit::Postgres::shared().await.expect("PostgreSQL").create_database().await.expect("a database");
    let pool = database.pool().await.expect("a pool");
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await.expect("migrated");
    let outbox = Outbox::default();
    let mut expected: BTreeMap<Uuid, Expected> = BTreeMap::new();
    for number in 0..count {
        let (message, wanted) = made(number, large);
        expected.insert(message.id(), wanted);
        let mut transaction = pool.begin().await.expect("begun");
        outbox.enqueue(&mut transaction, message).await.expect("enqueued");
        transaction.commit().await.expect("committed");
    }
    let stop = tokio_util::sync::CancellationToken::new();
    let dispatcher = Dispatcher::builder_shared(Arc::new(store), sink).build().expect("a dispatcher");
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let lines = consume(script, arguments, count).await;
    stop.cancel();
    assert_eq!(running.await.expect("it ended").abandoned, 0);
    for line in &lines {
        let id: Uuid = line["id"].as_str().expect("an id").parse().expect("an id");
        let wanted = expected.get(&id).expect("one of ours");
        let body = STANDARD.decode(line["body"].as_str().expect("a body")).expect("base64");
        // The database keeps JSON as a value, and writes it in its own way.
        let same = match wanted.headers["content-type"].as_str() {
            "application/json" => value(&body) == value(&wanted.body),
            _ => body == wanted.body,
        };
        assert!(same, "the body of {id} differs");
        for (name, value) in &wanted.headers {
            assert_eq!(line["headers"][name].as_str(), Some(value.as_str()), "{name} of {id}");
        }
    }
    for line in &lines {
        expected.remove(&line["id"].as_str().expect("an id").parse::<Uuid>().expect("an id"));
    }
    assert!(expected.is_empty(), "{} are missing", expected.len());
    lines
}

fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

async fn consume(script: &str, arguments: &[&str], count: usize) -> Vec<Value> {
    let path = format!("{}/tests/consumers/{script}", env!("CARGO_MANIFEST_DIR"));
    let python = tokio::task::spawn_blocking(python).await.expect("it ran").expect("a python");
    let mut command = tokio::process::Command::new(python);
    command.arg(path).args(arguments).arg(count.to_string()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(240), command.output()).await;
    let output = output.expect("the consumer ended in time").expect("it ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the consumer failed: {said}");
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
