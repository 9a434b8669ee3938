//! Room and breaker of one origin, so that one dead endpoint does not slow down fifty others.
//!
//! A publish occupies one of the dispatcher's slots for as long as it takes. So a message waits for one of its origin's
//! requests only if it may expect to get it soon: by the time that requests took lately and by how many wait already. If
//! not, it is given back at once, to come again when the origin is likely to have room. What was given back takes its turns
//! in an imagined queue that moves as fast as the origin does, so that a large backlog does not come back all at once. While
//! the origin is down the turnstile gives the turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::Outcome;
use postrider_core::breaker::{Pass, Turnstile};
use postrider_core::turns::Turns;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::config::HttpConfig;

/// The first turn in the imagined queue.
const FIRST_TURN: Duration = Duration::from_secs(1);
/// The last one.
const LAST_TURN: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Lane {
    limit: u32,
    patience: Duration,
    requests: Semaphore,
    turnstile: Turnstile,
    pace: Mutex<Pace>,
}

struct Pace {
    /// When a request ended last, or the first one began after a rest.
    moved: Instant,
    /// How long requests took lately.
    took: Duration,
    under_way: u32,
    waiting: u32,
    turns: Turns,
}

impl Lane {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        let now = Instant::now();
        let pace = Pace {
            moved: now,
            took: Duration::ZERO,
            under_way: 0,
            waiting: 0,
            turns: Turns::new(FIRST_TURN, LAST_TURN),
        };
        Self {
            limit: u32::try_from(config.concurrency).unwrap_or(u32::MAX).max(1),
            patience: config.patience,
            requests: Semaphore::new(config.concurrency.max(1)),
            turnstile: Turnstile::new(config.breaker()),
            pace: Mutex::new(pace),
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a message go to the origin, or answers what to say of it instead. If the origin is `alone` the dispatcher's own
    /// breaker minds it, which leaves the backlog in the table instead of giving it back message by message.
    pub(crate) async fn enter(&self, id: Uuid, alone: bool) -> Result<Request<'_>, Outcome> {
        let permit = match self.requests.try_acquire() {
            Ok(permit) => permit,
            Err(_) if self.turnstile.is_shut() => return Err(self.turnstile.refuse()),
            Err(_) => self.wait().await?,
        };
        let pass = if alone { None } else { Some(self.turnstile.enter(id)?) };
        Ok(Request::begin(self, pass, permit))
    }

    async fn wait(&self) -> Result<SemaphorePermit<'_>, Outcome> {
        let now = Instant::now();
        let Some(_waiting) = self.queue(now) else { return Err(self.busy(now)) };
        match timeout(self.patience, self.requests.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.busy(Instant::now())),
        }
    }

    /// Joins those who wait, if it is worth it.
    fn queue(&self, now: Instant) -> Option<Waiting<'_>> {
        let mut pace = self.pace();
        let expected = pace.took.saturating_mul(pace.waiting + 1) / self.limit;
        let stuck = now.saturating_duration_since(pace.moved) >= self.patience;
        if stuck || expected > self.patience {
            return None;
        }
        pace.waiting += 1;
        Some(Waiting(self))
    }

    /// Gives a message the next turn in the imagined queue.
    fn busy(&self, now: Instant) -> Outcome {
        let mut pace = self.pace();
        let step = pace.took / self.limit;
        let after = pace.turns.next(now, step, Duration::ZERO, fastrand::f64());
        drop(pace);
        Outcome::Busy { after, why: "the destination has no room for more requests now".into() }
    }
}

struct Waiting<'a>(&'a Lane);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pace().waiting -= 1;
    }
}

/// One request under way.
pub(crate) struct Request<'a> {
    lane: &'a Lane,
    pass: Option<Pass<'a>>,
    began: Instant,
    _permit: SemaphorePermit<'a>,
}

impl<'a> Request<'a> {
    fn begin(lane: &'a Lane, pass: Option<Pass<'a>>, permit: SemaphorePermit<'a>) -> Self {
        let began = Instant::now();
        let mut pace = lane.pace();
        if pace.under_way == 0 {
            pace.moved = began;
        }
        pace.under_way += 1;
        drop(pace);
        Self { lane, pass, began, _permit: permit }
    }

    /// Notes how it ended.
    pub(crate) fn leave(mut self, outcome: Outcome) -> Outcome {
        match self.pass.take() {
            Some(pass) => pass.leave(outcome),
            None => outcome,
        }
    }
}

impl Drop for Request<'_> {
    /// However it ended, also when it was cut off.
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now - self.began;
        let mut pace = self.lane.pace();
        pace.under_way -= 1;
        pace.moved = now;
        pace.took = if pace.took.is_zero() { took } else { (pace.took * 3 + took) / 4 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn lane(concurrency: usize) -> Arc<Lane> {
        Arc::new(Lane::new(&HttpConfig { concurrency, ..HttpConfig::default() }))
    }

    /// Requests that take so long, one after the other.
    fn visit(lane: &Arc<Lane>, takes: Duration) -> tokio::task::JoinHandle<Outcome> {
        let lane = lane.clone();
        tokio::spawn(async move {
            match lane.enter(Uuid::now_v7(), false).await {
                Err(busy) => busy,
                Ok(request) => {
                    tokio::time::sleep(takes).await;
                    request.leave(Outcome::Accepted)
                }
            }
        })
    }

    async fn count(visits: Vec<tokio::task::JoinHandle<Outcome>>) -> (usize, usize) {
        let mut counted = (0, 0);
        for visit in visits {
            match visit.await.expect("no panic") {
                Outcome::Accepted => counted.0 += 1,
                Outcome::Busy { after, .. } => {
                    assert!(after >= Duration::from_millis(750) && after <= Duration::from_secs(38), "{after:?}");
                    counted.1 += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        counted
    }

    #[tokio::test(start_paused = true)]
    async fn r58_at_a_fast_origin_all_wait_for_their_turn() {
        let lane = lane(8);
        let visits = (0..200).map(|_| visit(&lane, Duration::from_millis(5))).collect();
        assert_eq!(count(visits).await, (200, 0));
        // Also after a long rest.
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let visits = (0..200).map(|_| visit(&lane, Duration::from_millis(5))).collect();
        assert_eq!(count(visits).await, (200, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn r58_at_a_dead_origin_only_a_few_wait_and_only_once() {
        let lane = lane(8);
        let stuck: Vec<_> = (0..8).map(|_| visit(&lane, Duration::from_secs(8))).collect();
        tokio::task::yield_now().await;
        let began = Instant::now();
        let first: Vec<_> = (0..56).map(|_| visit(&lane, Duration::ZERO)).collect();
        assert_eq!(count(first).await, (0, 56));
        assert_eq!(began.elapsed().as_millis() / 10, 25, "they waited for as long as patience lasts");
        let began = Instant::now();
        let second: Vec<_> = (0..1_000).map(|_| visit(&lane, Duration::ZERO)).collect();
        assert_eq!(count(second).await, (0, 1_000));
        assert!(began.elapsed() < Duration::from_millis(2), "nobody waits any more: {:?}", began.elapsed());
        assert_eq!(count(stuck).await, (8, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn r58_at_a_slow_origin_only_those_wait_who_will_be_served() {
        let lane = lane(8);
        assert_eq!(count(vec![visit(&lane, Duration::from_millis(200))]).await, (1, 0));
        let visits: Vec<_> = (0..64).map(|_| visit(&lane, Duration::from_millis(200))).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let refused = visits.iter().filter(|visit| visit.is_finished()).count();
        assert_eq!(refused, 46, "8 began, 10 may expect a turn within 250 ms, and nobody else takes a slot");
        assert_eq!(count(visits).await, (16, 48), "8 at once, 8 after them; two more gave up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_comes_back_no_faster_than_the_origin_works() {
        let lane = lane(1);
        assert_eq!(count(vec![visit(&lane, Duration::from_secs(1))]).await, (1, 0));
        let _stuck = visit(&lane, Duration::from_secs(60));
        tokio::task::yield_now().await;
        let mut waits = Vec::new();
        for _ in 0..100 {
            match visit(&lane, Duration::ZERO).await.expect("no panic") {
                Outcome::Busy { after, .. } => waits.push(after),
                other => panic!("{other:?}"),
            }
        }
        assert!(waits[0] < Duration::from_secs(3) && waits[9] > Duration::from_secs(7), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LAST_TURN.mul_f64(1.25)));
    }
}
