//! The whole way of messages: enqueued in transactions, dispatched to a sink, and compared with what a consumer read.
//!
//! Promise: [`deliver`] returns when nothing is pending any more, and panics when something became dead. [`compare`]
//! panics with the first difference.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::store::Scope;
use postrider::{Dispatcher, Message, Sink, SqliteStore, Store};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::sinks::Arrival;
use crate::wait::eventually;

/// How many messages make the journey.
pub const COUNT: usize = 240;

const PATIENCE: Duration = Duration::from_secs(120);

/// A message as the producer knows it.
pub struct Sent {
    id: Uuid,
    body: Vec<u8>,
    headers: BTreeMap<&'static str, String>,
}

/// Enqueues messages of all kinds in transactions and runs a dispatcher until the sink has taken all of them.
pub async fn deliver(sink: impl Sink) -> Vec<Sent> {
    let directory = TempDir::new().expect("a directory");
    let store = SqliteStore::open(directory.path().join("outbox.db")).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let mut sent = Vec::new();
    for some in (0..COUNT).collect::<Vec<_>>().chunks(20) {
        let mut transaction = store.pool().begin_with("begin immediate").await.expect("it begins");
        for number in some {
            let (message, expected) = made(*number);
            store.outbox().enqueue(&mut transaction, message).await.expect("a good message");
            sent.push(expected);
        }
        transaction.commit().await.expect("it commits");
    }
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder(store.clone(), sink).build().expect("the settings agree");
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    eventually(PATIENCE, || async {
        let stats = store.stats(&Scope::all()).await.expect("counts");
        assert_eq!(stats.dead, 0, "a message is dead");
        stats.pending + stats.processing == 0
    })
    .await;
    stop.cancel();
    let ended = running.await.expect("the dispatcher does not panic");
    assert_eq!(ended.abandoned, 0);
    sent
}

/// The kinds take turns: small JSON, bytes of all values, JSON of other scripts, nothing at all, and once 1 MB.
fn made(number: usize) -> (Message, Sent) {
    let content_type = "application/x-journey; charset=binary";
    let (topic, key) = ("order.placed", format!("Kunde-{} größe", number % 7));
    let bytes: Vec<u8> = (0..=255).cycle().skip(number).take(300).collect();
    let value = match number {
        100 => json!({ "large": "x".repeat(998_000) }),
        _ => json!({ "number": number, "text": "Zażółć 🍷 \u{2028}" }),
    };
    let (message, body, kind) = match number % 4 {
        1 => (Message::bytes("shop", topic, content_type, bytes.clone()), bytes, content_type),
        3 => (Message::bytes("shop", topic, content_type, Vec::new()), Vec::new(), content_type),
        _ => (Message::json("shop", topic, &value), value.to_string().into_bytes(), "application/json"),
    };
    let colour = format!("rosé 100% №{number} = a:b, \"c\"");
    let message = message.key(key.clone()).header("colour", colour.clone()).header("x-a.b_c", "plain");
    let headers = [
        ("event_id", message.id().to_string()),
        ("topic", topic.to_owned()),
        ("key", key),
        ("attempt", "1".to_owned()),
        ("content-type", kind.to_owned()),
        ("colour", colour),
        ("x-a.b_c", "plain".to_owned()),
    ];
    let sent = Sent { id: message.id(), body, headers: headers.into() };
    (message, sent)
}

/// Whether everything arrived as it was sent, every byte and every header.
pub fn compare(sent: &[Sent], arrived: &[Arrival]) {
    let arrived: BTreeMap<_, _> = arrived.iter().map(|arrival| (arrival.id(), arrival)).collect();
    assert_eq!(arrived.len(), sent.len());
    for expected in sent {
        let arrival = arrived.get(&Some(expected.id)).expect("none is missing");
        assert_eq!(arrival.body, expected.body, "{}", expected.id);
        for (name, value) in &expected.headers {
            assert_eq!(arrival.headers.get(*name), Some(value), "{name} of {}", expected.id);
        }
    }
}
