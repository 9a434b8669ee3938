//! The dispatcher: claims, publishes and settles until it is told to stop.
//!
//! ```text
//!   claim ──► hand (bounded by rows and bytes) ──► publish (bounded calls) ──► settle (in batches)
//!     ▲                     │                                                      │
//!   doorbell              keep: renews what is under way, gives back what waits    └─► hand gets room
//! ```
//!
//! One task per duty, and the hand between them. `claim` looks ahead of need, one statement per batch, and
//! sleeps on the doorbell when there is nothing. `publish` calls the sink. `settle` writes outcomes back.
//! `keep` minds the leases: a publish under way is renewed, a row that waits too long is given back. `maintain`
//! sweeps, purges and counts.
//!
//! It fails towards a repeat, never towards a loss: whatever is not settled when the process or the database
//! dies is claimed again once its lease has run out.

mod claim;
mod config;
mod hand;
mod keep;
mod limit;
mod maintain;
mod observe;
mod publish;
mod pulse;
mod queue;
mod settle;
mod shared;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub use config::{
    ConfigError, DEFAULT_BATCH_SIZE, DEFAULT_CONCURRENCY, DEFAULT_LEASE, DEFAULT_LONGEST_RETRY_AFTER,
    DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_BYTES, DEFAULT_NAME, DEFAULT_POLL_INTERVAL, DEFAULT_PUBLISH_TIMEOUT,
    DEFAULT_SHUTDOWN_GRACE, DEFAULT_TENANTS_IN_METRICS, DispatcherBuilder,
};

pub use limit::{LONGEST_DELAY, TenantLimit, TenantLimits};
pub use pulse::{Pulse, Signs};

use self::config::Config;
use self::shared::Shared;
use crate::sink::Sink;
use crate::store::Store;

/// Delivers the messages of a store to a sink. Build one with [`Dispatcher::builder`].
pub struct Dispatcher {
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    config: Config,
    pulse: Pulse,
}

/// How a dispatcher ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "it says whether publishes were cut off"]
pub struct Ended {
    /// Messages whose publish was still under way when the grace period was over. Whether they arrived is
    /// unknown; they are claimed again once their lease has run out.
    pub abandoned: usize,
}

impl Dispatcher {
    /// Begins to describe a dispatcher from a store to a sink.
    pub fn builder(store: impl Store, sink: impl Sink) -> DispatcherBuilder {
        Self::builder_shared(Arc::new(store), Arc::new(sink))
    }

    /// The same for a store and a sink that are shared with others.
    pub fn builder_shared(store: Arc<dyn Store>, sink: Arc<dyn Sink>) -> DispatcherBuilder {
        DispatcherBuilder::new(store, sink)
    }

    /// Its signs of life, for health checks while it runs.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Runs until `stop` fires. Then it claims nothing more, gives back what it has not begun to publish, waits
    /// for what it has, settles, and returns. Dropping the future stops at once and leaves all to the leases.
    ///
    /// # Panics
    ///
    /// If a retry policy or the source of randomness panics. A sink may panic, that is an outcome.
    pub async fn run(self, stop: CancellationToken) -> Ended {
        let (grace, last_call) = (self.config.shutdown_grace, self.config.store_timeout);
        let stop = stop.child_token();
        let shared = Arc::new(Shared::new(self.store, self.sink, self.config, self.pulse, stop.clone()));
        let (finished, outcomes) = mpsc::unbounded_channel();
        let mut duties = Duties { tasks: Vec::new(), stop: stop.clone() };
        let settle = duties.begin(settle::run(shared.clone(), outcomes));
        let keep = duties.begin(keep::run(shared.clone()));
        let maintain = duties.begin(maintain::run(shared.clone()));
        let publish = duties.begin(publish::run(shared.clone(), finished));
        let claim = duties.begin(claim::run(shared.clone()));

        stop.cancelled().await;
        let deadline = tokio::time::Instant::now() + grace;
        // A claim under way is waited for, so that its rows can be given back.
        if tokio::time::timeout_at(deadline, claim.finish()).await.is_err() {
            tracing::warn!("the database does not answer; a claim under way is left to its leases");
        }
        let mut flights: JoinSet<()> = publish.finish().await;
        keep::give_back_all(&shared).await;
        let landed = async { while flights.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout_at(deadline, landed).await.is_ok();
        let abandoned = shared.hand.flying();
        flights.abort_all();
        drop(flights);
        if !in_time {
            tracing::warn!(abandoned, "the grace period is over; publishes under way are left to their leases");
        }
        // The settler ends when every sender is gone, unless a sink blocks its thread and cannot be cut off.
        shared.expire_at(deadline);
        if tokio::time::timeout_at(deadline + last_call, settle.finish()).await.is_err() {
            tracing::warn!("a sink blocks its thread; what it has not answered is left to its leases");
        }
        shared.retired.cancel();
        keep.finish().await;
        maintain.finish().await;
        Ended { abandoned }
    }
}

/// The tasks of a dispatcher. If one panics all are told to stop, so that it does not go on half alive; dropping them
/// aborts them all.
struct Duties {
    tasks: Vec<tokio::task::AbortHandle>,
    stop: CancellationToken,
}

struct Duty<T>(JoinHandle<T>);

impl Duties {
    fn begin<T: Send + 'static>(&mut self, duty: impl Future<Output = T> + Send + 'static) -> Duty<T> {
        let stop = self.stop.clone();
        let task = tokio::spawn(async move {
            let done = AssertUnwindSafe(duty).catch_unwind().await;
            done.unwrap_or_else(|panic| {
                stop.cancel();
                resume_unwind(panic)
            })
        });
        self.tasks.push(task.abort_handle());
        Duty(task)
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl<T> Duty<T> {
    /// Waits for the duty's end. A panic in our own code goes on to the caller; nobody else aborts a duty.
    async fn finish(self) -> T {
        match self.0.await {
            Ok(done) => done,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}
