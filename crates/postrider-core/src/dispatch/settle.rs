//! Settling: writes outcomes back, many at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::keep;
use super::shared::Shared;
use crate::lease::Lease;
use crate::outcome::{Outcome, error_text};
use crate::retry::next_delay;
use crate::sabotage::{self, Defect};
use crate::state::{Event, after_failure};
use crate::store::{Bury, ClaimedMessage, Nack, Order, Release, Settled, StoreError};

/// Outcomes per settle.
const BATCH: usize = 1_000;
/// The one verb that is never sent twice (see `lease.rs`).
const RELEASE: &str = "release";
/// How long a settle waits for more outcomes while publishes are under way.
const GATHER: Duration = Duration::from_millis(2);

/// Why followers are given back.
const WAITS: &str = "an earlier message with the same key was not delivered";

/// A publish that ended.
pub(super) struct Finished {
    pub message: ClaimedMessage,
    pub lease: Lease,
    /// When the claim was asked for.
    pub asked: Instant,
    pub outcome: Outcome,
    /// Whether a failure spends an attempt: not while the sink is known to be down.
    pub costs_attempt: bool,
}

/// What to write for an outcome.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Ack,
    Nack { delay: Duration, error: String },
    Bury { error: String },
    Release { delay: Duration, error: String },
}

/// Settles until every publisher is gone.
pub(super) async fn run(shared: Arc<Shared>, mut outcomes: mpsc::UnboundedReceiver<Finished>) {
    let mut batch = Vec::with_capacity(BATCH);
    while outcomes.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH && shared.hand.flying() > 0 {
            sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(more) = outcomes.try_recv()
            {
                batch.push(more);
            }
        }
        settle(&shared, &batch).await;
        shared.hand.done(batch.iter().map(|finished| &finished.message));
        batch.clear();
    }
}

async fn settle(shared: &Shared, batch: &[Finished]) {
    let verdicts: Vec<Verdict> = batch.iter().map(|finished| verdict(shared, finished)).collect();
    if shared.config.order == Order::Key {
        give_back_followers(shared, batch, &verdicts).await;
    }
    let (mut acks, mut nacks, mut buries, mut releases) = (Group::new(), Group::new(), Group::new(), Group::new());
    for (finished, verdict) in batch.iter().zip(verdicts) {
        let lease = finished.lease;
        match verdict {
            Verdict::Ack => acks.push(finished, lease),
            Verdict::Nack { delay, error } => nacks.push(finished, Nack { lease, delay, error }),
            Verdict::Bury { error } => buries.push(finished, Bury { lease, error }),
            Verdict::Release { delay, error } => {
                releases.push(finished, Release { lease, delay, error: Some(error) });
            }
        }
    }
    let (store, metrics) = (&shared.store, &shared.metrics);
    // What is counted and logged here has been written.
    let (_, _, buried, _) = tokio::join!(
        acks.write(
            shared,
            "ack",
            |leases| store.ack(leases, shared.config.delivered),
            |finished, _| {
                metrics.delivered(&finished.message, finished.message.age + finished.asked.elapsed());
            }
        ),
        nacks.write(
            shared,
            "nack",
            |nacks| store.nack(nacks),
            |finished, nack| {
                metrics.retried(&finished.message, finished.outcome.kind(), nack.delay);
            }
        ),
        buries.write(
            shared,
            "bury",
            |buries| store.bury(buries),
            |finished, _| {
                metrics.buried(&finished.message, finished.outcome.kind());
            }
        ),
        releases.write(
            shared,
            RELEASE,
            |releases| store.release(releases),
            |finished, _| metrics.released(1, if finished.costs_attempt { "busy" } else { "the sink is down" })
        ),
    );
    if shared.config.order == Order::Key {
        pass_on(shared, batch, &buries, &buried).await;
    }
}

/// Gives back what waits for a message that will be tried again, until then. That comes first: nobody else may claim the
/// message while we have others of its key.
async fn give_back_followers(shared: &Shared, batch: &[Finished], verdicts: &[Verdict]) {
    let mut followers = Vec::new();
    for (finished, verdict) in batch.iter().zip(verdicts) {
        if let Verdict::Nack { delay, .. } | Verdict::Release { delay, .. } = verdict {
            let waiting = shared.hand.take_followers(&finished.message);
            followers.extend(waiting.into_iter().map(|row| (row, *delay)));
        }
    }
    keep::release(shared, &followers, WAITS).await;
}

/// Lets those go on that waited for what is settled. If a message could not be written as dead it comes again, and so they
/// are given back.
async fn pass_on(shared: &Shared, batch: &[Finished], buries: &Group<'_, Bury>, buried: &[Settled]) {
    let mut followers = Vec::new();
    for (finished, _) in buries.finished.iter().zip(buried).filter(|(_, answer)| **answer != Settled::Done) {
        let waiting = shared.hand.take_followers(&finished.message);
        followers.extend(waiting.into_iter().map(|row| (row, Duration::ZERO)));
    }
    keep::release(shared, &followers, WAITS).await;
    for finished in batch.iter().filter(|finished| !finished.outcome.is_delivered()) {
        shared.hand.passed(&finished.message);
    }
    if batch.iter().any(|finished| finished.message.key.is_some()) {
        shared.freed.notify_one();
    }
}

fn verdict(shared: &Shared, finished: &Finished) -> Verdict {
    let (message, config) = (&finished.message, &shared.config);
    let (after, why) = match &finished.outcome {
        Outcome::Accepted | Outcome::Duplicate => return Verdict::Ack,
        Outcome::Reject(why) | Outcome::Unsendable(why) => return Verdict::Bury { error: error_text(why) },
        Outcome::Busy { after, why } => {
            let delay = (*after).min(config.longest_retry_after);
            return Verdict::Release { delay, error: error_text(why) };
        }
        Outcome::Retry { after, why } => (*after, why),
        Outcome::Unknown(why) => (None, why),
    };
    let policy = config.retry.delay(message.attempts, (config.randomness)());
    let delay = next_delay(policy, after, (config.randomness)(), config.longest_retry_after);
    let error = error_text(why);
    let released = matches!(finished.outcome, Outcome::Unknown(_)) && sabotage::has(Defect::UnknownReleased);
    if !finished.costs_attempt || released {
        return Verdict::Release { delay, error };
    }
    match after_failure(message.attempts, message.allowed_attempts(config.max_attempts)) {
        Event::Bury => Verdict::Bury { error },
        _ => Verdict::Nack { delay, error },
    }
}

/// Messages that get the same verb, with what to write for each.
struct Group<'a, T> {
    finished: Vec<&'a Finished>,
    entries: Vec<T>,
}

impl<'a, T> Group<'a, T> {
    fn new() -> Self {
        Self { finished: Vec::new(), entries: Vec::new() }
    }

    fn push(&mut self, finished: &'a Finished, entry: T) {
        self.finished.push(finished);
        self.entries.push(entry);
    }

    /// Writes the entries, over again while the database does not answer if the verb may be sent twice. Gives up
    /// after a lease's time: somebody else has the rows by then. A stale entry touches nothing; it is counted and
    /// logged, and never turned into a nack. Answers for each entry; what was given up is as good as lost.
    async fn write<'s, W>(
        &'s self,
        shared: &Shared,
        verb: &'static str,
        write: impl Fn(&'s [T]) -> W,
        written: impl Fn(&Finished, &T),
    ) -> Vec<Settled>
    where
        W: Future<Output = Result<Vec<Settled>, StoreError>> + Send,
    {
        if self.entries.is_empty() {
            return Vec::new();
        }
        let give_up = Instant::now() + shared.config.lease;
        let mut pauses = shared.pauses();
        loop {
            let error = match shared.call(verb, write(&self.entries)).await {
                Ok(answers) => {
                    if verb != RELEASE {
                        shared.pulse.settled();
                    }
                    self.report(shared, verb, &answers, written);
                    return answers;
                }
                Err(error) => error,
            };
            let over = Instant::now() >= give_up || shared.has_expired();
            if over || verb == RELEASE || !error.kind().is_transient() {
                self.leave(shared, verb, &error);
                return vec![Settled::LeaseLost; self.entries.len()];
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    fn report(&self, shared: &Shared, verb: &'static str, answers: &[Settled], written: impl Fn(&Finished, &T)) {
        for ((finished, entry), answer) in self.finished.iter().zip(&self.entries).zip(answers) {
            match answer {
                Settled::Done => written(finished, entry),
                Settled::LeaseLost if sabotage::has(Defect::StaleSettleCounted) => written(finished, entry),
                Settled::LeaseLost => shared.metrics.lease_lost(&finished.message, verb),
            }
        }
    }

    /// Leaves the rows to their leases. If the database refuses to settle at all, claiming more would only deliver the
    /// same messages again and again, so it pauses.
    fn leave(&self, shared: &Shared, verb: &'static str, error: &StoreError) {
        let rows = self.entries.len();
        if error.kind().is_transient() {
            tracing::warn!(verb, rows, "could not settle; the rows are left to their leases");
        } else {
            tracing::error!(verb, rows, "the database refuses to settle; claiming pauses for a lease, mend the cause");
            shared.pause_claiming();
        }
    }
}
