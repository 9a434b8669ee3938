//! The changelog's way to a sink: one entry after the other, in the order of commits, and nothing is skipped.
//!
//! A route has a position in the database and a lease on it, so that of several relays one works and another takes over
//! when it is gone. An entry that the sink does not take is tried again for as long as it needs, and everything after it
//! waits. The position is written after several entries, and always before a wait: what was published after it comes again
//! after a crash, with the same ids and in the same order.

pub mod feed;
mod hold;
mod keep;
mod message;
pub mod serve;
mod signs;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use postrider::dispatch::DEFAULT_LONGEST_RETRY_AFTER;
use postrider::outcome::error_text;
use postrider::retry::{RetryPolicy as _, next_delay};
use postrider::{ExponentialBackoff, Outcome, Sink};
use postrider_changelog::{ChangelogError, Consumer, ConsumerConfig, Cursor, Entry, Reader};
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::hold::{Hold, Trial, Unwritten};
pub use self::signs::Signs;
use crate::config::{Config, Source};
use crate::exit::with_causes;

/// What the names of the routes' consumers begin with, so that they are told from those of applications.
const PREFIX: &str = "route/";
/// How long a destination may be busy before the route counts as held back.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before a database that failed is asked again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long to wait when asking again is of no use before somebody mends something.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// How long a stop waits for the database where nothing depends on its answer.
const LAST_WORD: Duration = Duration::from_secs(2);
/// How often it is looked how far behind the route is.
const LOOK: Duration = Duration::from_secs(5);

/// A route of a changelog to a sink.
pub struct Carrier {
    source: String,
    route: String,
    reader: Arc<dyn Reader>,
    consumer: Consumer,
    sink: Arc<dyn Sink>,
    backoff: ExponentialBackoff,
    publish_timeout: Duration,
    grace: Duration,
    poll_interval: Duration,
    lease: Duration,
    /// How often the lease is renewed, and so the database heard of.
    tick: Duration,
    worker: Uuid,
    publishing: AtomicBool,
    pub signs: Signs,
}

/// That a publish is under way, until it ends or is given up.
struct Publishing<'a>(&'a AtomicBool);

impl<'a> Publishing<'a> {
    fn begin(publishing: &'a AtomicBool) -> Self {
        publishing.store(true, Ordering::Relaxed);
        Self(publishing)
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

impl Carrier {
    /// A carrier with the settings of its source.
    pub fn new(
        (name, source): (&str, &Source),
        route: &str,
        config: &Config,
        reader: Arc<dyn Reader>,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, ChangelogError> {
        let (lease, poll_interval) = (source.changelog.lease, source.changelog.poll_interval);
        let settings = ConsumerConfig { lease, poll_interval, ..ConsumerConfig::default() };
        Ok(Self {
            source: name.to_owned(),
            route: route.to_owned(),
            consumer: Consumer::new(reader.clone(), format!("{PREFIX}{route}"), settings)?,
            reader,
            sink,
            backoff: ExponentialBackoff { base_delay: source.retry_base, max_delay: source.retry_max },
            publish_timeout: source.publish_timeout,
            grace: config.relay.shutdown_grace,
            poll_interval,
            lease,
            tick: (lease / 3).min(config.admin.stalled_after / 3),
            worker: Uuid::now_v7(),
            publishing: AtomicBool::new(false),
            signs: Signs::new(name, route),
        })
    }

    /// Delivers until it is told to stop; answers how many publishes were cut off. What is under way then has the grace
    /// period to end, and the lease is given back.
    pub async fn run(&self, stop: &CancellationToken) -> usize {
        let over = async {
            stop.cancelled().await;
            sleep(self.grace).await;
        };
        let mut work = std::pin::pin!(self.work(stop));
        let abandoned = tokio::select! {
            biased;
            () = &mut work => 0,
            () = over => usize::from(self.publishing.load(Ordering::Relaxed)),
            never = self.look() => match never {},
        };
        self.signs.forget();
        abandoned
    }

    async fn work(&self, stop: &CancellationToken) {
        let mut trial = Trial::default();
        let mut kept: Option<Hold> = None;
        self.signs.answered();
        while !stop.is_cancelled() {
            let Err(error) = self.turn(&mut kept, &mut trial, stop).await else { continue };
            let pause = self.tell_of_failure(&error);
            if matches!(error, ChangelogError::LeaseLost { .. }) {
                kept = None;
            }
            if let Some(hold) = &mut kept
                && !error.is_transient()
            {
                // If the lease was lost, or the database is as it was, the next turn finds out.
                stop.run_until_cancelled(self.note(hold, &with_causes(&error))).await;
            }
            stop.run_until_cancelled(sleep(pause)).await;
        }
        if let Some(mut hold) = kept {
            let last = async {
                let _ = self.write(&mut hold).await;
                // A lease that is not given back ends by itself.
                let _ = hold.held.release().await;
            };
            let _ = timeout(LAST_WORD, last).await;
        }
    }

    /// Delivers until it is told to stop or something fails, under the lease that was kept, or under a new one. Whatever fails,
    /// but for the lease itself, the lease is kept: a route that let go of it would wait for its own old one to end.
    async fn turn(
        &self,
        kept: &mut Option<Hold>,
        trial: &mut Trial,
        stop: &CancellationToken,
    ) -> Result<(), ChangelogError> {
        let hold = match kept {
            // Something failed for a while; somebody may have taken over.
            Some(hold) => match self.before_the_end(stop, self.resume(hold)).await {
                Some(resumed) => resumed.map(|()| hold)?,
                None => return Ok(()),
            },
            None => match self.acquire(stop).await? {
                Some(hold) => kept.insert(hold),
                None => return Ok(()),
            },
        };
        if !self.signs.works(true) {
            tracing::info!(source = self.source, route = self.route, "delivering the changelog");
        }
        self.carry(hold, trial, stop).await
    }

    /// Waits for the lease; none if it is told to stop.
    async fn acquire(&self, stop: &CancellationToken) -> Result<Option<Hold>, ChangelogError> {
        while !stop.is_cancelled() {
            let renewed = Instant::now();
            // A lease that nobody knows of would keep the next relay waiting for its end.
            let asked = self.before_the_end(stop, self.ask(self.consumer.acquire())).await;
            if let Some(held) = asked.transpose()?.flatten() {
                return Ok(Some(Hold { held, unwritten: Unwritten::none(), renewed }));
            }
            self.signs.works(false);
            stop.run_until_cancelled(sleep(self.poll_interval)).await;
        }
        Ok(None)
    }

    /// Waits for an answer, and after a stop only for a moment.
    async fn before_the_end<T>(&self, stop: &CancellationToken, asked: impl Future<Output = T>) -> Option<T> {
        let late = async {
            stop.cancelled().await;
            sleep(LAST_WORD).await;
        };
        tokio::select! {
            biased;
            answer = asked => Some(answer),
            () = late => None,
        }
    }

    /// Looks how far behind the route is, in whoever's hands it is. That it cannot be looked is told by those who work.
    async fn look(&self) -> Infallible {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Ok(Ok(consumers)) = timeout(self.lease, self.reader.consumers()).await
                && let Some(ours) = consumers.iter().find(|consumer| consumer.name == self.consumer.name())
            {
                self.signs.behind(ours.behind);
            }
        }
    }

    /// Publishes entries under a lease until it is told to stop or something fails.
    async fn carry(&self, hold: &mut Hold, trial: &mut Trial, stop: &CancellationToken) -> Result<(), ChangelogError> {
        while !stop.is_cancelled() {
            let Some(page) = stop.run_until_cancelled(self.ask(hold.held.read())).await else { break };
            let page = page?;
            if self.signs.readable() {
                // What was noted is not so any more.
                hold.unwritten.cursor = Some(hold.held.cursor());
                self.write(hold).await?;
            }
            if page.entries.is_empty() {
                self.signs.behind(0);
                stop.run_until_cancelled(sleep(self.poll_interval)).await;
                self.renew_in_time(hold).await?;
            }
            for entry in &page.entries {
                let cursor = Cursor::at(page.store, entry);
                if self.deliver(hold, entry, cursor, trial, stop).await? == Next::Stop {
                    break;
                }
            }
            self.write(hold).await?;
        }
        Ok(())
    }

    /// Publishes an entry, as often as it needs.
    async fn deliver(
        &self,
        hold: &mut Hold,
        entry: &Entry,
        cursor: Cursor,
        trial: &mut Trial,
        stop: &CancellationToken,
    ) -> Result<Next, ChangelogError> {
        trial.of(entry.id);
        loop {
            if let Some(moment) = trial.not_before.filter(|moment| *moment > Instant::now()) {
                self.write(hold).await?;
                let waited = stop.run_until_cancelled(self.keep(hold, sleep_until(moment))).await;
                waited.transpose()?;
            }
            if stop.is_cancelled() {
                return Ok(Next::Stop);
            }
            self.renew_in_time(hold).await?;
            let outcome = self.keep(hold, self.publish(entry, trial.attempts.saturating_add(1))).await?;
            self.signs.published(&outcome);
            if outcome.is_delivered() {
                return self.delivered(hold, cursor, trial).await.map(|()| Next::GoOn);
            }
            self.failed(hold, entry, trial, &outcome).await?;
        }
    }

    async fn delivered(&self, hold: &mut Hold, cursor: Cursor, trial: &mut Trial) -> Result<(), ChangelogError> {
        hold.unwritten.add(cursor);
        *trial = Trial::default();
        let held_back = self.signs.goes_on();
        if let Some(held_back) = held_back {
            let seconds = held_back.as_secs();
            tracing::info!(source = self.source, route = self.route, seconds, "the changelog route goes on");
        }
        // Who looks at the consumers is not to read for longer than necessary that it fails.
        match held_back.is_some() || hold.unwritten.is_full() {
            true => self.write(hold).await,
            false => Ok(()),
        }
    }

    async fn failed(
        &self,
        hold: &mut Hold,
        entry: &Entry,
        trial: &mut Trial,
        outcome: &Outcome,
    ) -> Result<(), ChangelogError> {
        let now = Instant::now();
        let since = *trial.since.get_or_insert(now);
        let random = fastrand::f64();
        let (delay, why) = match outcome {
            // Nothing was sent, so this was no attempt.
            Outcome::Busy { after, why } => ((*after).min(self.backoff.max_delay), why),
            Outcome::Reject(why) | Outcome::Unsendable(why) => {
                trial.attempts = trial.attempts.saturating_add(1);
                (self.backoff.delay(i32::MAX, random), why)
            }
            Outcome::Retry { after, why } => {
                trial.attempts = trial.attempts.saturating_add(1);
                let policy = self.backoff.delay(trial.attempts, random);
                (next_delay(policy, *after, random, DEFAULT_LONGEST_RETRY_AFTER), why)
            }
            Outcome::Unknown(why) => {
                trial.attempts = trial.attempts.saturating_add(1);
                (self.backoff.delay(trial.attempts, random), why)
            }
            _ => return Ok(()),
        };
        trial.not_before = Some(now + delay);
        let is_busy = matches!(outcome, Outcome::Busy { .. });
        if is_busy && since.elapsed() < BUSY_PATIENCE {
            return Ok(());
        }
        self.signs.held_back(outcome.kind(), |since| {
            tracing::warn!(
                source = self.source, route = self.route, event_id = %entry.id, versionstamp = %entry.versionstamp,
                attempt = trial.attempts, outcome = outcome.kind(), seconds = since.as_secs(),
                "an entry of the changelog was not taken; it is tried again, and all after it wait"
            );
        });
        self.write(hold).await?;
        // What the destination said of the entry tells more than that it is left alone since.
        if is_busy && trial.attempts > 0 {
            return Ok(());
        }
        self.note(hold, &error_text(why)).await
    }

    /// One call of the sink within its time limit. The text of a panic may hold anything, so it is not passed on.
    async fn publish(&self, entry: &Entry, attempt: i32) -> Outcome {
        let message = match message::of(entry, &self.source, self.worker, attempt) {
            Ok(message) => message,
            Err(error) => return Outcome::Unsendable(format!("the entry cannot be written as JSON: {error}")),
        };
        let _publishing = Publishing::begin(&self.publishing);
        let call = AssertUnwindSafe(self.sink.publish(std::slice::from_ref(&message))).catch_unwind();
        let outcome = match timeout(self.publish_timeout, call).await {
            Ok(Ok(outcomes)) => outcomes.into_iter().next(),
            Ok(Err(_)) => Some(Outcome::Unknown("the sink panicked".into())),
            Err(_) => Some(Outcome::Unknown(format!("the sink did not answer within {:?}", self.publish_timeout))),
        };
        outcome.unwrap_or_else(|| Outcome::Unknown("the sink gave no outcome for this entry".into()))
    }

    /// Tells of what failed, and how long to wait before the next turn: not longer than the lease can wait.
    fn tell_of_failure(&self, error: &ChangelogError) -> Duration {
        let (source, route) = (&self.source, &self.route);
        match error {
            ChangelogError::LeaseLost { .. } => {
                tracing::warn!(source, route, "another relay took over the changelog route, or an operator moved it");
                self.signs.works(false);
                self.poll_interval
            }
            error if error.is_transient() => {
                if self.signs.is_trouble_news() {
                    tracing::warn!(source, route, "the changelog cannot be read or written: {}", with_causes(error));
                }
                PAUSE.min(self.tick)
            }
            error => {
                self.signs.held_back(signs::UNREADABLE, |_| {
                    tracing::error!(source, route, "the changelog cannot be read or written: {}", with_causes(error));
                });
                LONG_PAUSE.min(self.tick)
            }
        }
    }
}
