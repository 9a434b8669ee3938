//! An adapter that sends nothing over any network. It can be told that its provider is down or hangs, and counts what it was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use postrider::Outcome;
use postrider::sinks::provider::{Adapter, NoopAdapter, NoopConfig, NoopRecord, Outbound};
use tokio::sync::watch;

/// What the provider is said to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the words say it
pub enum Provider {
    Up,
    Down,
    Hanging,
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Stub {
    noop: NoopAdapter,
    provider: watch::Sender<Provider>,
    calls: Arc<AtomicUsize>,
}

impl Default for Stub {
    fn default() -> Self {
        let mut config = NoopConfig::default();
        config.keep = 1_000;
        Self { noop: NoopAdapter::new(&config), provider: watch::Sender::new(Provider::Up), calls: Arc::default() }
    }
}

impl Stub {
    /// Says what the provider does from now on. Who waits while it hangs is answered as it is then.
    pub fn set(&self, provider: Provider) {
        self.provider.send_replace(provider);
    }

    /// How often it was asked to send, with and without success.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// What it would have sent, without the texts.
    pub fn sent(&self) -> Vec<NoopRecord> {
        self.noop.last()
    }

    fn is(&self, provider: Provider) -> bool {
        *self.provider.borrow() == provider
    }
}

#[async_trait]
impl Adapter for Stub {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        self.calls.fetch_add(1, Ordering::SeqCst);
        // We hold the other end.
        let _ = self.provider.subscribe().wait_for(|provider| *provider != Provider::Hanging).await;
        match self.is(Provider::Up) {
            true => self.noop.send(outbound).await,
            false => Outcome::retry("the provider is down"),
        }
    }

    async fn ready(&self) -> Result<(), String> {
        if self.is(Provider::Up) { Ok(()) } else { Err("the provider is down".into()) }
    }
}
