//! The whole way of messages: enqueued in transactions, dispatched to a sink, read by a consumer in another language, and
//! compared.
//!
//! Promise: [`travel`] returns when the consumer has read all messages, each as it was enqueued, every byte and every
//! header; it panics with the first difference, when one is missing, and with what the consumer said when it fails.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider::{Dispatcher, Message, Sink, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::venv;

/// How many messages make the journey.
pub const COUNT: usize = 250;

/// A consumer gives up by itself earlier than that.
const PATIENCE: Duration = Duration::from_secs(240);

/// A message as the producer knows it.
struct Sent {
    body: Vec<u8>,
    headers: BTreeMap<&'static str, String>,
}

/// A script that reads messages: it is called with these arguments and the number of messages behind them, and prints a
/// line of JSON for each, with `body` in base64 and `headers`.
pub struct Consumer {
    script: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Consumer {
    /// A script with its arguments.
    pub fn new(script: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { script: script.into(), arguments, variables: Vec::new() }
    }

    /// Gives it a variable of the environment.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    async fn read(self, count: usize) -> Vec<Value> {
        let python = tokio::task::spawn_blocking(venv::python).await.expect("it ran").expect("a Python");
        let mut command = Command::new(python);
        // Isolated, so that a script may have the name of the package that it imports.
        command.arg("-I").arg(&self.script).args(self.arguments).arg(count.to_string()).envs(self.variables);
        let ended = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
        let ended = ended.expect("the consumer ends in time").expect("Python runs");
        assert!(ended.status.success(), "{} failed:\n{}", self.script, String::from_utf8_lossy(&ended.stderr));
        let lines = String::from_utf8(ended.stdout).expect("text");
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Enqueues messages of all kinds in transactions, the largest with so many bytes, and runs a dispatcher until the consumer
/// has read them. Answers the consumer's lines; one that came twice is there twice.
pub async fn travel(sink: Arc<dyn Sink>, largest: usize, consumer: Consumer) -> Vec<Value> {
    let directory = TempDir::new().expect("a directory");
    let store = SqliteStore::open(directory.path().join("outbox.db")).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let mut sent = BTreeMap::new();
    for some in (0..COUNT).collect::<Vec<_>>().chunks(20) {
        let mut transaction = store.pool().begin_with("begin immediate").await.expect("it begins");
        for number in some {
            let (message, expected) = made(*number, largest);
            sent.insert(message.id(), expected);
            store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
        }
        transaction.commit().await.expect("it commits");
    }
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder_shared(Arc::new(store), sink).build().expect("the settings agree");
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let lines = consumer.read(COUNT).await;
    stop.cancel();
    assert_eq!(running.await.expect("the dispatcher does not panic").abandoned, 0);
    compare(&sent, &lines);
    lines
}

/// The kinds take turns: JSON of all scripts and bytes of all values, with a key and without; one of them is large.
fn made(number: usize, largest: usize) -> (Message, Sent) {
    let (topic, canary) = ("order.placed", "application/x-canary; charset=binary");
    let bytes: Vec<u8> = (0..=255).cycle().skip(number).take(300).collect();
    let value = match number {
        // Two quotation marks belong to it.
        99 => json!("x".repeat(largest - 2)),
        _ => json!({ "number": number, "text": "Zażółć 東京 🍷 \"quoted\" \u{2028}" }),
    };
    let (message, body, content_type) = match number % 3 {
        1 => (Message::bytes("shop", topic, canary, bytes.clone()), bytes, canary),
        _ => (Message::json("shop", topic, &value), value.to_string().into_bytes(), "application/json"),
    };
    let colour = format!("rosé 100% №{number} = a:b, \"c\"");
    let mut message = message.header("colour", &colour).header("x-a.b_c", "plain").header("event-type", "order_placed");
    let mut headers = BTreeMap::from([
        ("event_id", message.id().to_string()),
        ("event_type", "order_placed".to_owned()),
        ("namespace", "shop".to_owned()),
        ("topic", topic.to_owned()),
        ("attempt", "1".to_owned()),
        ("content-type", content_type.to_owned()),
        ("colour", colour),
        ("x-a.b_c", "plain".to_owned()),
    ]);
    if !number.is_multiple_of(4) {
        let key = format!("Kunde-{} größe", number % 7);
        message = message.key(&key);
        headers.insert("key", key);
    }
    (message, Sent { body, headers })
}

fn compare(sent: &BTreeMap<Uuid, Sent>, lines: &[Value]) {
    let mut missing: Vec<_> = sent.keys().collect();
    for line in lines {
        let id = line["headers"]["event_id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
        let expected = sent.get(&id).expect("one of ours");
        let body = STANDARD.decode(line["body"].as_str().expect("a body")).expect("base64");
        assert!(body == expected.body, "the body of {id} differs");
        for (name, value) in &expected.headers {
            assert_eq!(line["headers"][name].as_str(), Some(value.as_str()), "{name} of {id}");
        }
        assert_eq!(line["headers"].get("key").is_some(), expected.headers.contains_key("key"), "the key of {id}");
        missing.retain(|known| **known != id);
    }
    assert!(missing.is_empty(), "{} are missing", missing.len());
}
