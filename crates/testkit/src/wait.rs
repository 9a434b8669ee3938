//! Waiting for a condition, never for a duration.
//!
//! The condition is asked every 10 ms. A condition that hangs counts as one that is not met.

use std::panic::Location;
use std::time::Duration;

use anyhow::{Result, anyhow};

const POLL_EVERY: Duration = Duration::from_millis(10);

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

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
