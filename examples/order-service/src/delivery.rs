//! Delivery: a dispatcher that hands each message to a closure. A real shop would send it to a broker there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider::{ClaimedMessage, ConfigError, Dispatcher, PostgresStore, PublishError, callback};
use tokio::sync::watch;
use uuid::Uuid;

/// A stand-in for the world: it prints what it is given, and can be told to fail once.
#[derive(Clone)]
pub struct World {
    fails_next: Arc<AtomicBool>,
    received: watch::Sender<Vec<Uuid>>,
}

impl World {
    /// A world that has received nothing yet.
    pub fn new() -> Self {
        Self { fails_next: Arc::default(), received: watch::Sender::default() }
    }

    /// Lets the next delivery fail.
    pub fn fail_once(&self) {
        self.fails_next.store(true, Ordering::SeqCst);
    }

    /// The ids of all orders that it was told of, in the order they arrived.
    pub fn received(&self) -> watch::Receiver<Vec<Uuid>> {
        self.received.subscribe()
    }

    async fn deliver(&self, message: ClaimedMessage) -> Result<(), PublishError> {
        if self.fails_next.swap(false, Ordering::SeqCst) {
            println!("  failed     attempt {} of message {}: it will be tried again", message.attempts, message.id);
            return Err(PublishError::retry("the world is busy"));
        }
        let payload = message.payload.to_value().map_err(|error| PublishError::reject(error.to_string()))?;
        println!("  delivered  {} {payload}, attempt {}", message.topic, message.attempts);
        let order = message.dedupe_key.and_then(|key| key.parse::<Uuid>().ok());
        self.received.send_modify(|orders| orders.extend(order));
        Ok(())
    }
}

/// A dispatcher from the outbox to the world. Every setting has a default; this one is impatient for the demo's sake.
pub fn dispatcher(store: PostgresStore, world: World) -> Result<Dispatcher, ConfigError> {
    let sink = callback(move |message| {
        let world = world.clone();
        async move { world.deliver(message).await }
    });
    Dispatcher::builder(store, sink)
        .name("order-service")
        .backoff(Duration::from_millis(200), Duration::from_secs(60))
        .build()
}
