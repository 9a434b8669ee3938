//! The low-level API: claim a batch, then ack or nack each message by its id.
//!
//! Most applications run a [`Dispatcher`](crate::Dispatcher) instead; it is built on the same verbs. Use this
//! when the publishing loop must be your own.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use uuid::Uuid;

use crate::lease::Lease;
use crate::message::Message;
use crate::outcome::error_text;
use crate::retry::{ExponentialBackoff, Randomness, RetryPolicy, system_randomness};
use crate::state::{Event, after_failure};
use crate::store::{Bury, ClaimOrder, ClaimRequest, Delivered, Nack, Order, Scope, Settled, Store, StoreError};

pub use crate::store::{ClaimedMessage, StoreErrorKind};

/// A message as plain fields; converts into a [`Message`].
#[derive(Clone)]
#[allow(missing_docs)]
pub struct OutboxMessage {
    pub namespace: &'static str,
    pub topic: &'static str,
    pub tenant_id: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub payload: Value,
}

impl From<OutboxMessage> for Message {
    fn from(given: OutboxMessage) -> Self {
        let mut message = Self::json(given.namespace, given.topic, &given.payload);
        if let Some(tenant) = given.tenant_id {
            message = message.tenant(tenant);
        }
        if let Some(key) = given.dedupe_key {
            message = message.dedupe_key(key);
        }
        message
    }
}

/// How to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimCfg {
    /// The most rows in one claim.
    pub batch_size: u32,
    /// How long the lease lasts.
    pub lease_duration: Duration,
    /// The total number of delivery attempts, the first included. Rows at or over it are not claimed.
    pub max_attempts: u32,
}

/// A store scoped to one namespace, for one worker.
///
/// It remembers the attempt of every message it claimed, so that [`ack`](Self::ack) and
/// [`nack`](Self::nack) are fenced although they are given an id only. Of two claims of the same row by the
/// same `OutboxStore` the later one counts.
pub struct OutboxStore<E = StoreError> {
    /// The database.
    pub db: Arc<dyn Store>,
    /// Written to `locked_by`.
    pub worker_id: Uuid,
    /// The only namespace whose rows are claimed.
    pub namespace: String,
    retry: Arc<dyn RetryPolicy>,
    randomness: Randomness,
    claims: Mutex<HashMap<Uuid, Claim>>,
    error: PhantomData<fn() -> E>,
}

#[derive(Clone, Copy)]
struct Claim {
    lease: Lease,
    allowed_attempts: i32,
    forget_at: Instant,
}

impl<E: From<StoreError> + Send + 'static> OutboxStore<E> {
    /// A store for one worker and namespace, with the default retry policy.
    pub fn new(db: Arc<dyn Store>, worker_id: Uuid, namespace: impl Into<String>) -> Self {
        Self {
            db,
            worker_id,
            namespace: namespace.into(),
            retry: Arc::new(ExponentialBackoff::default()),
            randomness: system_randomness(),
            claims: Mutex::default(),
            error: PhantomData,
        }
    }

    /// Replaces the retry policy that [`nack`](Self::nack) uses, and the randomness of its jitter.
    pub fn with_retry(mut self, retry: impl RetryPolicy + 'static, randomness: Randomness) -> Self {
        self.retry = Arc::new(retry);
        self.randomness = randomness;
        self
    }

    /// Claims due rows of the namespace, oldest first. Rows whose attempts are spent and whose lease ran out
    /// are buried on the way. A row that workers died on repeatedly comes first and alone (see
    /// [`ClaimOrder::Suspects`]).
    pub async fn claim_batch(&self, cfg: ClaimCfg) -> Result<Vec<ClaimedMessage>, E> {
        let scope = Scope::namespace(self.namespace.clone());
        let max_attempts = i32::try_from(cfg.max_attempts).unwrap_or(i32::MAX);
        let swept = self.db.sweep(&scope, max_attempts, cfg.batch_size.max(1)).await?;
        let mut request = ClaimRequest {
            scope,
            worker: self.worker_id,
            limit: 1,
            max_bytes: u64::MAX,
            lease: cfg.lease_duration,
            max_attempts,
            order: ClaimOrder::Suspects,
            waits: Order::None,
            followers: 0,
            thorough: true,
        };
        let mut messages = Vec::new();
        if swept.suspects {
            messages = self.db.claim(&request).await?.messages;
        }
        if messages.is_empty() {
            request.order = ClaimOrder::Due;
            request.limit = cfg.batch_size;
            messages = self.db.claim(&request).await?.messages;
        }
        self.remember(&messages, max_attempts, cfg.lease_duration);
        Ok(messages)
    }

    /// Marks a message as delivered. An error of kind [`StoreErrorKind::LeaseLost`] means that somebody else
    /// has the row by now, or it is finished: log it, and do not nack.
    pub async fn ack(&self, id: Uuid) -> Result<(), E> {
        let claim = self.recall(id)?;
        let answers = self.db.ack(&[claim.lease], Delivered::Keep).await?;
        self.forget(id, claim, &answers)
    }

    /// Puts a message back for a later attempt by the retry policy, or gives it up when its attempts are spent.
    pub async fn nack(&self, id: Uuid, err: &str) -> Result<(), E> {
        let claim = self.recall(id)?;
        let (lease, error) = (claim.lease, error_text(err));
        let answers = match after_failure(lease.attempt, claim.allowed_attempts) {
            Event::Bury => self.db.bury(&[Bury { lease, error }]).await?,
            _ => {
                let delay = self.retry.delay(lease.attempt, (self.randomness)());
                self.db.nack(&[Nack { lease, delay, error }]).await?
            }
        };
        self.forget(id, claim, &answers)
    }

    /// Claims that nobody settles are forgotten long after their lease.
    fn remember(&self, messages: &[ClaimedMessage], max_attempts: i32, lease: Duration) {
        let now = Instant::now();
        let forget_at = now + lease.saturating_mul(16).min(Duration::from_secs(30 * 24 * 3600));
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|_, claim| now < claim.forget_at);
        for message in messages {
            let allowed_attempts = message.allowed_attempts(max_attempts);
            claims.insert(message.id, Claim { lease: message.lease, allowed_attempts, forget_at });
        }
    }

    fn recall(&self, id: Uuid) -> Result<Claim, E> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.get(&id).copied().ok_or_else(|| lease_lost(id).into())
    }

    fn forget(&self, id: Uuid, claim: Claim, answers: &[Settled]) -> Result<(), E> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.get(&id).is_some_and(|latest| latest.lease == claim.lease) {
            claims.remove(&id);
        }
        match answers {
            [Settled::Done] => Ok(()),
            _ => Err(lease_lost(id).into()),
        }
    }
}

fn lease_lost(id: Uuid) -> StoreError {
    StoreError::new(
        StoreErrorKind::LeaseLost,
        format!(
            "message {id} is not leased by this worker any more; another worker has it or it is finished, so leave it alone"
        ),
    )
}
