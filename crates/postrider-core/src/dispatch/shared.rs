//! What a dispatcher's duties share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::Config;
use super::hand::Hand;
use super::observe::Metrics;
use super::pulse::Pulse;
use crate::breaker::{Breaker, Gate};
use crate::outcome::Outcome;
use crate::sabotage::{self, Defect};
use crate::sink::Sink;
use crate::store::{Store, StoreError, StoreErrorKind};

pub(super) struct Shared {
    pub store: Arc<dyn Store>,
    pub sink: Arc<dyn Sink>,
    pub config: Config,
    pub hand: Hand,
    pub metrics: Metrics,
    pub pulse: Pulse,
    /// Fires when the dispatcher shall stop.
    pub stop: CancellationToken,
    /// Fires when all is settled and the last duties may end.
    pub retired: CancellationToken,
    /// Fires when claiming has to stop: the breaker opened, or the database refuses to settle.
    pub shut: Notify,
    /// Messages were settled or buried, so others of their keys may be claimed now.
    pub freed: Notify,
    suspects: AtomicBool,
    breaker: Mutex<Breaker>,
    deadline: OnceLock<Instant>,
    paused: Mutex<Option<Instant>>,
}

impl Shared {
    pub fn new(
        store: Arc<dyn Store>,
        sink: Arc<dyn Sink>,
        config: Config,
        pulse: Pulse,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            sink,
            hand: Hand::new(&config),
            metrics: Metrics::new(&config.name, config.tenant_metrics),
            pulse,
            stop,
            retired: CancellationToken::new(),
            shut: Notify::new(),
            freed: Notify::new(),
            suspects: AtomicBool::new(false),
            breaker: Mutex::new(Breaker::new(config.breaker)),
            deadline: OnceLock::new(),
            paused: Mutex::default(),
            config,
        }
    }

    /// Runs a statement within its time limit, and counts and logs its failure.
    pub async fn call<T>(
        &self,
        verb: &'static str,
        statement: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let limit = self.config.store_timeout;
        let done = timeout(limit, statement).await.unwrap_or_else(|_| {
            let what = format!("{verb} failed: the database did not answer within {limit:?}; it is tried again");
            Err(StoreError::new(StoreErrorKind::Unavailable, what))
        });
        done.inspect(|_| self.pulse.looked()).inspect_err(|error| self.metrics.store_failed(verb, error))
    }

    /// Waits, but not beyond the moment when the dispatcher shall stop.
    pub async fn unless_stopped(&self, wait: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = wait => {}
        }
    }

    /// Waits until nothing is in hand.
    pub async fn hand_empty(&self) {
        self.unless_stopped(self.hand.until(|rows, _| rows == 0)).await;
    }

    pub fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the breaker allows now. A sink that minds outages by itself is never left alone as a whole.
    pub fn gate(&self, now: Instant) -> Gate {
        match self.sink.minds_outages() {
            true => Gate::Open,
            false => self.breaker().gate(now),
        }
    }

    /// Whether the breaker leaves the sink alone for now.
    pub fn is_shut(&self) -> bool {
        matches!(self.gate(Instant::now()), Gate::ShutUntil(_))
    }

    /// Tells the breaker how a publish ended, unless the sink minds outages by itself. Says whether a failure costs an
    /// attempt: not if the sink was known to be down.
    pub fn tell_breaker(&self, id: Uuid, outcome: &Outcome) -> bool {
        let minded = self.sink.minds_outages();
        let mut breaker = self.breaker();
        let was_open = breaker.is_open();
        match outcome {
            // What was open before the sink began to mind outages must not stay so.
            _ if minded => {
                breaker.worked();
            }
            Outcome::Accepted | Outcome::Duplicate | Outcome::Reject(_) => {
                breaker.worked();
            }
            // In a trial the next message is tried at once; this one is dead, so that this comes to an end.
            Outcome::Unsendable(_) => {}
            Outcome::Busy { .. } => breaker.had_no_room(Instant::now()),
            Outcome::Retry { .. } | Outcome::Unknown(_) => {
                breaker.failed(id, Instant::now());
            }
        }
        let is_open = breaker.is_open();
        drop(breaker);
        if was_open != is_open {
            self.metrics.breaker(is_open);
            self.pulse.breaker(is_open);
        }
        if is_open {
            self.shut.notify_one();
        }
        minded || !was_open || sabotage::has(Defect::OutageCostsAttempts)
    }

    /// Whether claims may be made as usual.
    pub fn may_claim(&self) -> bool {
        self.paused_until().is_none() && self.gate(Instant::now()) == Gate::Open
    }

    /// Notes whether rows wait that are to be claimed alone.
    pub fn note_suspects(&self, waiting: bool) {
        self.suspects.store(waiting, Ordering::Relaxed);
    }

    pub fn has_suspects(&self) -> bool {
        self.suspects.load(Ordering::Relaxed)
    }

    /// Sets the time after which a shutdown no longer waits for the database.
    pub fn expire_at(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    pub fn has_expired(&self) -> bool {
        self.deadline.get().is_some_and(|deadline| Instant::now() >= *deadline)
    }

    /// The pauses between tries of a database that does not answer: from 50 ms, doubling to 2 s or a sixth of the
    /// lease, with jitter.
    pub fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<> {
        pauses(self.config.lease, (self.config.randomness)())
    }

    /// Stops claiming for the time of a lease.
    pub fn pause_claiming(&self) {
        *self.paused_until() = Some(Instant::now() + self.config.lease);
        self.shut.notify_one();
    }

    /// Until when claiming pauses because the database refuses to settle.
    pub fn paused_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Shared::pauses`]; `random` is from 0 up to 1. Without a seed of our own the jitter would be the same in every
/// process: the library has no chance without its feature `std`.
fn pauses(lease: Duration, random: f64) -> impl Iterator<Item = Duration> + Send + use<> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay((lease / 6).min(Duration::from_secs(2)))
        .with_jitter()
        .with_jitter_seed(random.to_bits())
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(random: f64) -> Vec<Duration> {
        pauses(Duration::from_secs(30), random).take(8).collect()
    }

    #[test]
    fn r33_relays_do_not_come_back_to_a_database_at_the_same_times() {
        assert_ne!(first(0.25), first(0.75));
        assert_eq!(first(0.25), first(0.25), "chance is passed in");
        let bounds = [50, 100, 200, 400, 800, 1_600, 2_000, 2_000].map(Duration::from_millis);
        let within = |(pause, bound): (&Duration, &Duration)| (*bound..=*bound * 2).contains(pause);
        assert!(first(0.5).iter().zip(&bounds).all(within), "{:?}", first(0.5));
    }
}
