//! The relay's verbs in memory, each under one lock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::Doorbell;
use postrider_core::lease::Lease;
use postrider_core::store::{
    Bury, Capabilities, ClaimRequest, Claimed, Delivered, Nack, Purge, Release, Scope, Settled, Stats, Store,
    StoreError, Swept,
};
use tokio::sync::Notify;
use uuid::Uuid;

use super::doorbell::Bells;
use super::table::{StoredMessage, Table};
use crate::clock::{Clock, TokioClock, micros};
use crate::enqueue::Outbox;

/// An outbox in memory, as a relay and a test see it. Clones are the same outbox.
#[derive(Clone)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
}

/// What a store and its transactions have in common.
pub(super) struct Shared {
    table: Mutex<Table>,
    pub clock: Box<dyn Clock>,
    pub bells: Bells,
    /// Told whenever a transaction ends.
    pub ended: Notify,
}

impl Shared {
    /// The table. Every change to it is complete before the lock is let go, so a panic elsewhere spoils nothing.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("rows", &self.shared.table().rows.len()).finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty outbox whose time follows tokio's.
    pub fn new() -> Self {
        Self::with_clock(TokioClock::default())
    }

    /// An empty outbox with a clock of your own, a [`ManualClock`](super::ManualClock) say.
    pub fn with_clock(clock: impl Clock) -> Self {
        let (table, bells, ended) = (Mutex::default(), Bells::default(), Notify::new());
        Self { shared: Arc::new(Shared { table, clock: Box::new(clock), bells, ended }) }
    }

    /// The producer's side of the same outbox, with the default limits.
    pub fn outbox(&self) -> Outbox {
        Outbox::default()
    }

    /// All committed messages with all their fields, in the order they were enqueued.
    pub fn enqueued(&self) -> Vec<StoredMessage> {
        self.shared.table().rows.values().cloned().collect()
    }

    /// Changes a committed row by hand, as an operator would with SQL; answers whether there is one. Leave its id,
    /// `seq` and dedupe key as they are.
    pub fn edit(&self, id: Uuid, change: impl FnOnce(&mut StoredMessage)) -> bool {
        self.shared.table().by_id(id).map(change).is_some()
    }

    /// What time it is for this store, in microseconds since 1970.
    pub fn now_micros(&self) -> i64 {
        self.shared.clock.now_micros()
    }

    pub(super) fn with_table<T>(&self, run: impl FnOnce(&mut Table, i64) -> T) -> T {
        let mut table = self.shared.table();
        let now = self.now_micros();
        run(&mut table, now)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { rings: true, parallel_writers: true, server_clock: false, fair: true, order_by_key: true }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        Ok(self.with_table(|table, now| table.claim(request, now)))
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        Ok(self.with_table(|table, now| leases.iter().map(|given| table.extend(given, lease, now)).collect()))
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        Ok(self.with_table(|table, now| leases.iter().map(|lease| table.ack(lease, then, now)).collect()))
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        Ok(self.with_table(|table, now| nacks.iter().map(|nack| table.nack(nack, now)).collect()))
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        Ok(self.with_table(|table, now| buries.iter().map(|bury| table.bury(bury, now)).collect()))
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        Ok(self.with_table(|table, now| releases.iter().map(|release| table.release(release, now)).collect()))
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        Ok(self.with_table(|table, now| table.sweep(scope, max_attempts, limit, now)))
    }

    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        Ok(self.with_table(|table, now| table.purge(purge, now)))
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        Ok(self.with_table(|table, now| table.stats(scope, now)))
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        Ok(self.with_table(|table, now| table.next_due(scope, now)))
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        Ok(self.with_table(|table, now| table.next_after(scope, now, now.saturating_sub(micros(since)))))
    }

    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        Ok(Box::new(self.shared.bells.hang(scope.clone())))
    }

    async fn ring(&self, scope: &Scope) -> Result<(), StoreError> {
        self.shared.bells.ring(scope.namespaces.as_deref());
        Ok(())
    }
}
