//! The conformance suite of sinks, kept by the sink `http` against a server that takes webhooks.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use postrider_core::{ClaimedMessage, Sink};
use postrider_sinks::{Format, HttpClient};
use support::{ANYWHERE, Received, Reply, Server, destination, local, status};
use testkit::sinks::{Arrival, Broker, message};
use tokio::sync::Mutex;

const TAKES: u8 = 0;
const REFUSES: u8 = 1;
const IS_SILENT: u8 = 2;
const LARGEST: usize = 2_000_000;

/// A receiver of webhooks.
struct Receiver {
    mood: Arc<AtomicU8>,
    server: Mutex<Option<Server>>,
    address: String,
    taken: Arc<std::sync::Mutex<Vec<Arrival>>>,
}

impl Receiver {
    async fn listen(&self, address: &str) -> Server {
        let (mood, taken) = (self.mood.clone(), self.taken.clone());
        Server::start_at(address, None, move |request| {
            let mood = mood.load(Ordering::SeqCst);
            if mood == REFUSES {
                return status(503);
            }
            if request.headers.get("postrider-topic").is_some_and(|topic| topic == "poison") {
                return status(422);
            }
            if request.body.len() > LARGEST {
                return status(413);
            }
            taken.lock().expect("not poisoned").push(arrival(request));
            if mood == IS_SILENT { Reply::Silence } else { status(204) }
        })
        .await
    }
}

/// A request in the words of the suite: what HTTP carries under a prefix or encoded is named as it is elsewhere.
fn arrival(request: &Received) -> Arrival {
    let mut headers = BTreeMap::new();
    for (name, value) in &request.headers {
        let plain = percent_decode_str(value).decode_utf8_lossy().into_owned();
        let (name, value) = match name.as_str() {
            "postrider-tenant" => ("tenant_id".to_owned(), plain),
            "postrider-created" => ("created_at".to_owned(), plain),
            "event_id" => ("postrider-header-event_id".to_owned(), value.clone()),
            "ce-id" => {
                headers.insert("event_id".to_owned(), plain.clone());
                (name.clone(), plain)
            }
            name => match (name.strip_prefix("postrider-header-"), name.strip_prefix("postrider-")) {
                (Some(carried), _) => (carried.to_owned(), plain),
                (None, Some(ours)) => (ours.replace('-', "_"), plain),
                (None, None) => (name.to_owned(), value.clone()),
            },
        };
        headers.insert(name, value);
    }
    // In structured mode everything is in the body.
    if let Ok(body) = serde_json::from_slice::<serde_json::Value>(&request.body)
        && let Some(id) = body["id"].as_str()
    {
        headers.insert("event_id".to_owned(), id.to_owned());
    }
    Arrival { body: request.body.clone(), headers, key: None }
}

#[async_trait]
impl Broker for Receiver {
    async fn start() -> Self {
        let mut receiver = Self {
            mood: Arc::new(AtomicU8::new(TAKES)),
            server: Mutex::default(),
            address: String::new(),
            taken: Arc::default(),
        };
        let server = receiver.listen(ANYWHERE).await;
        receiver.address = server.address.to_string();
        *receiver.server.lock().await = Some(server);
        receiver
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = local();
        (config.timeout, config.connect_timeout) = (patience, patience);
        let client = HttpClient::new(&config).expect("a client");
        let sink = client.sink(destination(&format!("http://{}/hooks", self.address))).expect("a sink");
        Arc::new(sink.with_format(format))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.taken.lock().expect("not poisoned").clone()
    }

    async fn stop(&self) {
        // It has ended when this returns; what only were to end soon might still take a message.
        if let Some(server) = self.server.lock().await.take() {
            server.stop().await;
        }
    }

    async fn restart(&self) {
        *self.server.lock().await = Some(self.listen(&self.address).await);
    }

    async fn obstruct(&self) {
        self.mood.store(REFUSES, Ordering::SeqCst);
    }

    async fn clear(&self) {
        self.mood.store(TAKES, Ordering::SeqCst);
    }

    async fn silence(&self) {
        self.mood.store(IS_SILENT, Ordering::SeqCst);
    }

    async fn speak(&self) {
        self.mood.store(TAKES, Ordering::SeqCst);
    }

    fn poison(&self) -> ClaimedMessage {
        let mut poison = message(13);
        poison.topic = "poison".into();
        poison
    }

    fn too_large(&self) -> usize {
        LARGEST
    }
}

testkit::sink_conformance!(Receiver);
