//! The doorbell in memory: every commit rings the bells whose scope it touches.
//!
//! A ring that nobody waits for yet is kept until the next wait, so it cannot fall between a look and the sleep.
//! Arming drops what rang before: those commits are visible, and the look that follows finds them.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use postrider_core::doorbell::{Armed, Doorbell};
use postrider_core::store::{Scope, StoreError};
use tokio::sync::Notify;

/// The bells that hang on a store.
#[derive(Default)]
pub(super) struct Bells(Mutex<Vec<(Scope, Weak<Notify>)>>);

impl Bells {
    /// A new bell; it is taken down when it is dropped.
    pub fn hang(&self, scope: Scope) -> MemoryDoorbell {
        let bell = Arc::new(Notify::new());
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.push((scope, Arc::downgrade(&bell)));
        MemoryDoorbell(bell)
    }

    /// Rings every bell that has to do with one of these namespaces, or with any.
    pub fn ring(&self, namespaces: Option<&[String]>) {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|(scope, bell)| {
            let Some(bell) = bell.upgrade() else { return false };
            if concerns(scope, namespaces) {
                bell.notify_one();
            }
            true
        });
    }
}

fn concerns(scope: &Scope, namespaces: Option<&[String]>) -> bool {
    match (&scope.namespaces, namespaces) {
        (Some(listens), Some(rung)) => rung.iter().any(|name| listens.contains(name)),
        _ => true,
    }
}

/// One dispatcher's bell.
pub(super) struct MemoryDoorbell(Arc<Notify>);

#[async_trait]
impl Doorbell for MemoryDoorbell {
    async fn arm(&mut self) -> Result<Armed, StoreError> {
        pin!(self.0.notified()).enable();
        Ok(Armed::Yes)
    }

    async fn disarm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), StoreError> {
        self.0.notified().await;
        Ok(())
    }
}
