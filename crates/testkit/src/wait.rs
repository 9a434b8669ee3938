//! Waiting for a condition, never for a duration.
//!
//! The condition is asked every 10 ms. A condition that hangs counts as one that is not met.

use std::panic::{AssertUnwindSafe, Location};
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::FutureExt;
use tokio::time::Instant;

const POLL_EVERY: Duration = Duration::from_millis(10);
const TRIES: usize = 10;

/// Waits until the condition holds; panics with the caller's place in the code when it does not within `timeout`.
#[track_caller]
pub fn eventually<C, F>(timeout: Duration, condition: C) -> impl Future<Output = ()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let place = Location::caller();
    async move {
        if let Err(error) = within(timeout, &format!("the condition at {place}"), condition).await {
            panic!("{error}");
        }
    }
}

/// Waits until the condition holds; fails with its description when it does not within `timeout`.
pub async fn within<C, F>(timeout: Duration, what: &str, mut condition: C) -> Result<()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let poll = async {
        while !condition().await {
            tokio::time::sleep(POLL_EVERY).await;
        }
    };
    tokio::time::timeout(timeout, poll).await.map_err(|_| anyhow!("{what} was not met within {timeout:?}"))
}

/// Does something until it has once taken less than `limit`; panics with the times it took when it never does.
///
/// A promise of time is broken by a fault every time, and by a busy machine now and then.
#[track_caller]
pub fn quickly<C, F>(limit: Duration, mut act: C) -> impl Future<Output = F::Output>
where
    C: FnMut() -> F,
    F: Future,
{
    let place = Location::caller();
    async move {
        let mut took = Vec::new();
        while took.len() < TRIES {
            let begun = Instant::now();
            let done = act().await;
            took.push(begun.elapsed());
            if took.last().is_some_and(|took| *took < limit) {
                return done;
            }
        }
        panic!("what is done at {place} never took less than {limit:?}: {took:?}");
    }
}

/// Does something again that has failed and has taken longer than `limit`: then it may be the machine that stood still
/// between two steps, and what is tested goes by its own clock. What fails in time has failed, and so has what never
/// is in time.
pub async fn undisturbed<C, F>(limit: Duration, mut act: C) -> F::Output
where
    C: FnMut() -> F,
    F: Future,
{
    for _ in 1..TRIES {
        let begun = Instant::now();
        match AssertUnwindSafe(act()).catch_unwind().await {
            Ok(done) => return done,
            Err(failed) if begun.elapsed() < limit => std::panic::resume_unwind(failed),
            Err(_disturbed) => println!("once more, because it took {:?} and failed", begun.elapsed()),
        }
    }
    act().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn once_in_time_is_quick_enough() {
        let tried = Cell::new(0);
        let done = quickly(Duration::from_secs(1), || {
            tried.set(tried.get() + 1);
            let takes = if tried.get() == 3 { 0 } else { 2 };
            async move { tokio::time::sleep(Duration::from_secs(takes)).await }
        });
        done.await;
        assert_eq!(tried.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_while_the_machine_stood_still_is_done_again() {
        let tried = Cell::new(0);
        undisturbed(Duration::from_secs(1), || async {
            tried.set(tried.get() + 1);
            if tried.get() < 3 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                panic!("too late");
            }
        })
        .await;
        assert_eq!(tried.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the first")]
    async fn what_fails_in_time_has_failed() {
        let tried = Cell::new(0);
        undisturbed(Duration::from_secs(1), || async {
            tried.set(tried.get() + 1);
            assert!(tried.get() > 1, "the first");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "never took less than 1s")]
    async fn what_is_slow_every_time_is_not_quick() {
        quickly(Duration::from_secs(1), || tokio::time::sleep(Duration::from_secs(2))).await;
    }

    #[tokio::test]
    async fn the_wait_ends_as_soon_as_the_condition_holds() {
        let asked = Cell::new(0);
        eventually(Duration::from_secs(10), || {
            asked.set(asked.get() + 1);
            let met = asked.get() == 5;
            async move { met }
        })
        .await;
        assert_eq!(asked.get(), 5);
    }

    #[tokio::test]
    #[should_panic(expected = "wait.rs")]
    async fn a_condition_that_is_never_met_panics_with_its_place() {
        eventually(Duration::from_millis(30), || async { false }).await;
    }

    #[tokio::test]
    async fn a_condition_that_hangs_fails_with_its_description() {
        let outcome = within(Duration::from_millis(30), "peace", std::future::pending::<bool>).await;
        assert!(outcome.is_err_and(|error| error.to_string() == "peace was not met within 30ms"));
    }
}
