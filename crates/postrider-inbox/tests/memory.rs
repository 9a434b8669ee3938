//! The inbox in memory keeps every promise of the inbox seam.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use postrider_inbox::{MemoryGuard, MemoryInbox};
use testkit::inbox::Harness;
use uuid::Uuid;

#[derive(Default)]
struct Memory {
    inbox: MemoryInbox,
    effects: Mutex<HashMap<Uuid, usize>>,
}

impl Harness for Memory {
    type Inbox = MemoryInbox;
    const IS_EXACT: bool = false;

    fn events() -> usize {
        testkit::inbox::scaled(20_000)
    }

    async fn start() -> Self {
        Self::default()
    }

    async fn inbox(&self) -> MemoryInbox {
        self.inbox.clone()
    }

    async fn effect(&self, _: &mut MemoryGuard, event: Uuid) {
        *self.effects.lock().unwrap_or_else(PoisonError::into_inner).entry(event).or_default() += 1;
        tokio::task::yield_now().await;
    }

    async fn effects(&self) -> HashMap<Uuid, usize> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

testkit::inbox_conformance!(Memory);
