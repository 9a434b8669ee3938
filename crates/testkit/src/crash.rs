//! A store that ends its process at a chosen point, as a crash would: nothing is cleaned up and nobody is told.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use postrider::store::{
    Bury, Capabilities, ClaimRequest, Claimed, Delivered, Nack, Purge, Release, Scope, Settled, Stats, StoreError,
    Swept,
};
use postrider::{Doorbell, Lease, Store};

/// Where a process can be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Point {
    AfterClaim,
    BeforePublish,
    MidPublish,
    AfterPublish,
    BeforeAck,
    MidAckBatch,
    AfterAck,
    BeforeNack,
    AfterNack,
    BeforeExtend,
    AfterExtend,
    InSweep,
    InPurge,
}

impl Point {
    /// Every point.
    pub const ALL: [Self; 13] = [
        Self::AfterClaim,
        Self::BeforePublish,
        Self::MidPublish,
        Self::AfterPublish,
        Self::BeforeAck,
        Self::MidAckBatch,
        Self::AfterAck,
        Self::BeforeNack,
        Self::AfterNack,
        Self::BeforeExtend,
        Self::AfterExtend,
        Self::InSweep,
        Self::InPurge,
    ];
}

/// A point, and how often it is passed before the process ends there. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Crash {
    point: Point,
    left: Arc<AtomicUsize>,
}

impl Crash {
    /// Ends the process if this is the point and it was passed often enough.
    pub fn at(&self, point: Point) {
        if self.is_due(point) {
            std::process::abort();
        }
    }

    fn is_due(&self, point: Point) -> bool {
        point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// Reads `MidAckBatch:3`, the third time a batch is acked.
impl FromStr for Crash {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, times) = text.split_once(':').context("a crash is POINT:TIMES")?;
        let Some(point) = Point::ALL.into_iter().find(|point| format!("{point:?}") == name) else {
            bail!("{name} is no point; there are {:?}", Point::ALL);
        };
        Ok(Self { point, left: Arc::new(AtomicUsize::new(times.parse()?)) })
    }
}

/// Ends the process once a statement has worked, also if the dispatcher loses its patience meanwhile.
async fn crash_after(statement: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
    let crash = tokio::spawn(async move {
        match statement.await {
            Ok(()) => std::process::abort(),
            Err(error) => panic!("the statement before the crash failed: {error:?}"),
        }
    });
    let _ = crash.await;
}

/// A store that crashes its process.
pub struct CrashingStore {
    store: Arc<dyn Store>,
    crash: Crash,
}

impl CrashingStore {
    /// Wraps a store.
    pub fn new(store: Arc<dyn Store>, crash: Crash) -> Self {
        Self { store, crash }
    }
}

#[async_trait]
impl Store for CrashingStore {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let claimed = self.store.claim(request).await?;
        if !claimed.messages.is_empty() {
            self.crash.at(Point::AfterClaim);
        }
        Ok(claimed)
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        self.crash.at(Point::BeforeExtend);
        let answers = self.store.extend(leases, lease).await?;
        self.crash.at(Point::AfterExtend);
        Ok(answers)
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        self.crash.at(Point::BeforeAck);
        if leases.len() > 1 && self.crash.is_due(Point::MidAckBatch) {
            let (store, leases) = (self.store.clone(), leases[..leases.len() / 2].to_vec());
            crash_after(async move { store.ack(&leases, then).await.map(drop) }).await;
        }
        let answers = self.store.ack(leases, then).await?;
        self.crash.at(Point::AfterAck);
        Ok(answers)
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        self.crash.at(Point::BeforeNack);
        let answers = self.store.nack(nacks).await?;
        self.crash.at(Point::AfterNack);
        Ok(answers)
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        self.store.bury(buries).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        self.store.release(releases).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        let swept = self.store.sweep(scope, max_attempts, limit).await?;
        self.crash.at(Point::InSweep);
        Ok(swept)
    }

    /// At its point it deletes some of what is finished, whatever its age, and crashes.
    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        if self.crash.is_due(Point::InPurge) {
            let store = self.store.clone();
            let purge = Purge { older_than: Duration::ZERO, limit: 10, ..purge.clone() };
            crash_after(async move { store.purge(&purge).await.map(drop) }).await;
        }
        self.store.purge(purge).await
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        self.store.stats(scope).await
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        self.store.next_due(scope).await
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        self.store.next_coming(scope, since).await
    }

    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        self.store.doorbell(scope).await
    }

    async fn ring(&self, scope: &Scope) -> Result<(), StoreError> {
        self.store.ring(scope).await
    }
}
