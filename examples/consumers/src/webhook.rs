//! Webhooks: an HTTP receiver that checks the signature of each request.
//!
//! | answer | when | what the relay makes of it |
//! |---|---|---|
//! | 204 | the inbox remembers the event | delivered |
//! | 400 | its signed id is not an event id | dead: it will not be better the next time |
//! | 401 | the signature is missing, wrong or old | tried again: the secrets may be mended |
//! | 413 | the body is larger than allowed | dead |
//! | 503 | it is in progress, with `Retry-After`; or it failed | tried again |
//!
//! For an event in progress 409 would read well, and it would be wrong: a relay may be told that it means "I have it".
//!
//! A handler goes on when the relay has waited long enough and hung up. The next request finds the event in progress, or
//! handled. If requests ended their handlers, one that takes longer than the relay waits would never come to its end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use postrider::inbox::{Inbox, Wire};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::signature::Secrets;
use crate::{Answer, Consumer, Handler};

/// How requests are received.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The path that the relay sends to.
    pub path: String,
    /// What requests are signed with; two of them while one takes the place of the other.
    pub secrets: Secrets,
    /// The largest body in bytes. What is larger is dead at the relay, so it must be as large as any message can be.
    pub largest_body: usize,
}

struct Receiver<I, H> {
    consumer: Arc<Consumer<I, H>>,
    secrets: Secrets,
    handlers: TaskTracker,
}

/// Receives until it is stopped; what has begun by then is finished.
pub async fn run<I, H>(
    consumer: Arc<Consumer<I, H>>,
    settings: &Settings,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()>
where
    I: Inbox + 'static,
    H: Handler<I::Guard> + 'static,
{
    let handlers = TaskTracker::new();
    let receiver = Receiver { consumer, secrets: settings.secrets.clone(), handlers: handlers.clone() };
    let router = Router::new()
        .route(&settings.path, post(receive))
        .layer(DefaultBodyLimit::max(settings.largest_body))
        .with_state(Arc::new(receiver));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?;
    // Also those whose request is gone.
    handlers.close();
    handlers.wait().await;
    Ok(())
}

async fn receive<I, H>(State(receiver): State<Arc<Receiver<I, H>>>, headers: HeaderMap, body: Bytes) -> Response
where
    I: Inbox + 'static,
    H: Handler<I::Guard> + 'static,
{
    let header = |name: &str| headers.get(name)?.to_str().ok();
    // First, because the relay takes a request without an id for dead, and one without a signature for a mistake to mend.
    if let Err(error) = receiver.secrets.check(header, &body, SystemTime::now()) {
        tracing::warn!(%error, "a request was refused");
        return (StatusCode::UNAUTHORIZED, error.to_string()).into_response();
    }
    let delivery = match receiver.consumer.read(Wire::Http, header) {
        Ok(delivery) => delivery,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let consumer = receiver.consumer.clone();
    let handling = async move { consumer.on_delivery(&delivery, &body).await };
    match receiver.handlers.spawn(handling).await {
        Ok(Answer::Handled) => StatusCode::NO_CONTENT.into_response(),
        Ok(Answer::Busy(wait)) => {
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, whole_seconds(wait))]).into_response()
        }
        // The relay knows best how long to leave alone what fails. A handler that panicked has failed as well.
        Ok(Answer::Failed(_) | Answer::Foreign(_)) | Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn whole_seconds(wait: Duration) -> String {
    wait.as_millis().div_ceil(1_000).max(1).to_string()
}
