//! Publishing: calls the sink with bounded concurrency, and makes one outcome per message of whatever happens.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use super::hand::Taken;
use super::settle::Finished;
use super::shared::Shared;
use crate::outcome::Outcome;
use crate::sabotage::{self, Defect};
use crate::store::{ClaimedMessage, Order};
use crate::trace;

/// Publishes until the dispatcher stops; answers what is still under way then.
pub(super) async fn run(shared: Arc<Shared>, finished: mpsc::UnboundedSender<Finished>) -> JoinSet<()> {
    let useful = shared.sink.concurrency().unwrap_or(usize::MAX).max(1);
    let calls = Arc::new(Semaphore::new(shared.config.concurrency.min(useful)));
    let mut flights = JoinSet::new();
    while let Some(permit) = next_permit(&shared, &calls).await {
        let free = 1 + calls.available_permits();
        let Taken { batches, next } = match shared.is_shut() {
            true => Taken::default(),
            false => shared.hand.take(free, &*shared.sink, Instant::now()),
        };
        if batches.is_empty() {
            drop(permit);
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                () = shared.hand.work.notified() => continue,
                () = until(next) => continue,
            }
        }
        let mut permit = Some(permit);
        for batch in batches {
            // Only this task takes permits, so those that were free still are.
            let permit = permit.take().or_else(|| calls.clone().try_acquire_owned().ok());
            flights.spawn(fly(shared.clone(), batch, finished.clone(), permit));
        }
        while flights.try_join_next().is_some() {}
    }
    flights
}

/// Waits for a time, if there is one.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}

async fn next_permit(shared: &Shared, calls: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        () = shared.stop.cancelled() => None,
        permit = calls.clone().acquire_owned() => permit.ok(),
    }
}

async fn fly(
    shared: Arc<Shared>,
    batch: Vec<ClaimedMessage>,
    finished: mpsc::UnboundedSender<Finished>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    if sabotage::has(Defect::AckBeforePublish) {
        let leases: Vec<_> = batch.iter().map(|message| message.lease).collect();
        let _ = shared.store.ack(&leases, shared.config.delivered).await;
    }
    let started = Instant::now();
    let span = publish_span(&batch);
    let outcomes = publish(&shared, &batch).instrument(span).await;
    let took = started.elapsed();
    shared.pulse.turned();
    for (message, outcome) in batch.into_iter().zip(outcomes) {
        shared.metrics.published(&message, &outcome, took);
        let costs_attempt = shared.tell_breaker(message.id, &outcome);
        let (lease, asked) = shared.hand.landed(&message);
        // What else becomes of the message, and so of those that wait for it, is decided when it is settled.
        if outcome.is_delivered() {
            shared.hand.passed(&message);
        }
        // The settler outlives every publish; if it is gone the process is going down and the lease decides.
        let _ = finished.send(Finished { message, lease, asked, outcome, costs_attempt });
    }
}

/// A span for one publish, with the producer's trace as its parent when there is one message.
fn publish_span(batch: &[ClaimedMessage]) -> tracing::Span {
    let [message] = batch else { return tracing::debug_span!("publish", messages = batch.len()) };
    let span = tracing::debug_span!(
        "publish", event_id = %message.id, namespace = message.namespace, topic = message.topic,
        tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts
    );
    trace::adopt(&span, &message.headers);
    span
}

/// Exactly one outcome per message, whatever the sink does.
async fn publish(shared: &Shared, batch: &[ClaimedMessage]) -> Vec<Outcome> {
    match publish_once(shared, batch).await {
        Some(outcomes) => outcomes,
        None if batch.len() == 1 => vec![Outcome::Unknown("the sink panicked".into())],
        None => {
            // One message of the batch makes the sink panic: find it by publishing each alone.
            let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
            for (at, alone) in batch.chunks(1).enumerate() {
                if waits(shared, &batch[..at], &outcomes, &batch[at]) {
                    outcomes.push(Outcome::Busy { after: Duration::ZERO, why: WAITS.into() });
                    continue;
                }
                let outcome = publish_once(shared, alone).await.and_then(|mut outcomes| outcomes.pop());
                outcomes.push(outcome.unwrap_or_else(|| Outcome::Unknown("the sink panicked".into())));
            }
            outcomes
        }
    }
}

/// What is said of a message that was not sent because an earlier one of its key was not delivered.
const WAITS: &str = "an earlier message with the same key was not delivered";

/// Whether a message has to wait for an earlier one of the same batch.
fn waits(shared: &Shared, before: &[ClaimedMessage], outcomes: &[Outcome], message: &ClaimedMessage) -> bool {
    let Some(line) = message.line().filter(|_| shared.config.order == Order::Key) else { return false };
    before.iter().zip(outcomes).any(|(other, outcome)| other.line() == Some(line) && !outcome.is_delivered())
}

/// One call of the sink within its time limit; `None` if it panicked. The panic's text may hold anything, so it
/// is not passed on.
async fn publish_once(shared: &Shared, batch: &[ClaimedMessage]) -> Option<Vec<Outcome>> {
    let limit = shared.config.publish_timeout;
    let call = AssertUnwindSafe(shared.sink.publish(batch)).catch_unwind();
    let mut outcomes = match timeout(limit, call).await {
        Ok(answer) => answer.ok()?,
        Err(_) => vec![Outcome::Unknown(format!("the sink did not answer within {limit:?}")); batch.len()],
    };
    let missing = || Outcome::Unknown("the sink gave no outcome for this message".into());
    outcomes.resize_with(batch.len(), missing);
    Some(outcomes)
}
