//! A handler that records its effects, fails when it is told to, and can be held up in the middle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use consumers::Handler;
use postrider::inbox::Delivery;
use tokio::sync::watch;
use uuid::Uuid;

#[derive(Clone)]
pub struct Work(Arc<Inner>);

struct Inner {
    /// How often each event was begun.
    tries: Mutex<HashMap<Uuid, usize>>,
    effects: Mutex<Vec<Uuid>>,
    failures: AtomicUsize,
    panics: AtomicBool,
    open: watch::Sender<bool>,
}

impl Default for Work {
    fn default() -> Self {
        let (tries, effects) = Default::default();
        Self(Arc::new(Inner {
            tries,
            effects,
            failures: AtomicUsize::new(0),
            panics: AtomicBool::new(false),
            open: watch::Sender::new(true),
        }))
    }
}

impl Work {
    /// The first so many tries of each event fail.
    pub fn fail_first(&self, tries: usize) {
        self.0.failures.store(tries, Ordering::SeqCst);
    }

    /// The first try of each event panics.
    pub fn panic_first(&self) {
        self.0.panics.store(true, Ordering::SeqCst);
    }

    /// Handlers stop in the middle, before their effect.
    pub fn close(&self) {
        self.0.open.send_replace(false);
    }

    /// They go on.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    pub fn tries(&self, event: Uuid) -> usize {
        self.0.tries.lock().unwrap_or_else(PoisonError::into_inner).get(&event).copied().unwrap_or_default()
    }

    /// How many events have been begun.
    pub fn begun(&self) -> usize {
        self.0.tries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn effects(&self, event: Uuid) -> usize {
        self.order().iter().filter(|done| **done == event).count()
    }

    /// All effects in their order.
    pub fn order(&self) -> Vec<Uuid> {
        self.0.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<G: Send> Handler<G> for Work {
    type Error = &'static str;

    async fn handle(&self, delivery: &Delivery, body: &[u8], _: &mut G) -> Result<(), &'static str> {
        let tries = {
            let mut tries = self.0.tries.lock().unwrap_or_else(PoisonError::into_inner);
            let tries = tries.entry(delivery.event).or_default();
            *tries += 1;
            *tries
        };
        assert!(tries > 1 || !self.0.panics.load(Ordering::SeqCst), "it panics, as this test wants it to");
        if tries <= self.0.failures.load(Ordering::SeqCst) {
            return Err("it fails, as this test wants it to");
        }
        if !body.starts_with(b"{\"number\":") {
            return Err("this is not what was enqueued");
        }
        self.0.open.subscribe().wait_for(|open| *open).await.map_err(|_| "the test is over")?;
        // A moment in which a duplicate can come.
        tokio::task::yield_now().await;
        self.0.effects.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.event);
        Ok(())
    }
}
