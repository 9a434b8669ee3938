//! Starting a consumer again when it ends with an error.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Runs a consumer, and again after a pause whenever it ends with an error, until it is stopped.
pub async fn keep<F, Ended, E>(stop: &CancellationToken, pause: Duration, consume: F)
where
    F: Fn() -> Ended,
    Ended: Future<Output = Result<(), E>>,
    E: Display,
{
    while let Err(error) = consume().await {
        tracing::error!(%error, "the consumer ended; it is started again");
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            break;
        }
    }
}
