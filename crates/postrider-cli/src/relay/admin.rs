//! The endpoint for health checks and metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::changelog::feed::CLIENT_PATIENCE;
use super::changelog::serve;
use super::health::{Answer, Current};
use super::patient::PatientListener;
use crate::config::Admin;
use crate::exit::Failure;

/// How long a stop waits for answers that are under way.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What Prometheus calls its text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Shown {
    current: Current,
    metrics: PrometheusHandle,
}

/// A socket that is listened on already, if there is to be an endpoint.
pub struct Bound(Option<TcpListener>);

/// The endpoint at work.
pub struct Endpoint {
    serving: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Endpoint {
    /// Lets answers that are under way come to their end, but does not wait long for clients.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Some(mut serving) = self.serving
            && timeout(LAST_ANSWERS, &mut serving).await.is_err()
        {
            serving.abort();
        }
    }
}

/// Takes the address before anything is delivered. Where nobody has chosen it (`optional`) the relay does without.
pub async fn bind(admin: &Admin, optional: bool) -> Result<Bound, Failure> {
    if !admin.enabled {
        return Ok(Bound(None));
    }
    match TcpListener::bind(admin.listen).await {
        Ok(listener) => {
            tracing::info!(address = %listener.local_addr()?, "health checks and metrics");
            Ok(Bound(Some(listener)))
        }
        Err(error) if optional && admin.listen == Admin::default().listen => {
            tracing::warn!(address = %admin.listen, "no health checks and metrics: {error}");
            Ok(Bound(None))
        }
        Err(error) => Err(Failure::failed(format!(
            "admin.listen: {} cannot be listened on: {error}; choose another, or set admin.enabled = false",
            admin.listen
        ))),
    }
}

impl Bound {
    /// Serves `/healthz`, `/readyz` and `/metrics`, and the changelogs that are to be served, in the background.
    pub fn serve(self, current: Current, metrics: PrometheusHandle) -> Endpoint {
        let changelogs = serve::router(current.clone());
        let app = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(self::metrics))
            .with_state(Shown { current, metrics })
            .merge(changelogs);
        let stop = CancellationToken::new();
        let serving = self.0.map(|listener| {
            // Who reads nothing for that long is gone.
            let serving = axum::serve(PatientListener { listener, patience: CLIENT_PATIENCE }, app)
                .with_graceful_shutdown(stop.clone().cancelled_owned());
            tokio::spawn(async move {
                if let Err(error) = serving.await {
                    tracing::error!("the admin endpoint ended: {error}");
                }
            })
        });
        Endpoint { serving, stop }
    }
}

async fn healthz(State(shown): State<Shown>) -> Response {
    answer(shown.current.health())
}

async fn readyz(State(shown): State<Shown>) -> Response {
    answer(shown.current.readiness().await)
}

async fn metrics(State(shown): State<Shown>) -> Response {
    metrics_process::Collector::default().collect();
    ([(header::CONTENT_TYPE, METRICS_TYPE)], shown.metrics.render()).into_response()
}

fn answer(answer: Answer) -> Response {
    let status = if answer.good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(answer.body)).into_response()
}
