//! The relay: takes messages from the outbox and brings them to the terminal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::{ClaimedMessage, ConfigError, Dispatcher, PublishError, SqliteStore, callback};

use super::progress::Progress;

/// The destination, and its own notes of what arrived.
#[derive(Default)]
pub struct Terminal(Mutex<Notes>);

#[derive(Default)]
pub struct Notes {
    /// How often each order arrived.
    pub arrivals: BTreeMap<u32, u32>,
    /// From the writing of each message to its first arrival.
    pub latencies: Vec<Duration>,
    /// Publishes that failed.
    pub failures: u32,
}

impl Terminal {
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to one message: mostly it arrives. Now and then the line is down, and now and then the message
    /// arrives but the answer is lost, so that it comes once more: that is what "at least once" means.
    async fn publish(&self, message: ClaimedMessage, progress: &Progress) -> Result<(), PublishError> {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..5))).await;
        let chance = fastrand::u32(..100);
        if chance < 5 {
            self.notes().failures += 1;
            return Err(PublishError::retry("the line is down"));
        }
        self.arrived(&message)?;
        progress.tell(&message);
        if chance == 5 {
            self.notes().failures += 1;
            return Err(PublishError::unknown("the answer was lost"));
        }
        Ok(())
    }

    fn arrived(&self, message: &ClaimedMessage) -> Result<(), PublishError> {
        let key = message.key.as_deref().and_then(|key| key.parse().ok());
        let order = key.ok_or_else(|| PublishError::reject("the key is not an order's number"))?;
        let mut notes = self.notes();
        let times = notes.arrivals.entry(order).or_default();
        *times += 1;
        if *times == 1 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let written = Duration::from_micros(u64::try_from(message.created_at_micros).unwrap_or(0));
            notes.latencies.push(now.saturating_sub(written));
        }
        Ok(())
    }
}

/// A dispatcher with a closure for a sink.
pub fn dispatcher(store: SqliteStore, terminal: Arc<Terminal>, progress: Progress) -> Result<Dispatcher, ConfigError> {
    let sink = callback(move |message| {
        let (terminal, progress) = (terminal.clone(), progress.clone());
        async move { terminal.publish(message, &progress).await }
    });
    Dispatcher::builder(store, sink)
        .backoff(Duration::from_millis(100), Duration::from_secs(2))
        .max_attempts(20)
        .build()
}
