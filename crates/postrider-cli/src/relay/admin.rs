//! The endpoint for health checks and metrics.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::AbortHandle;

use super::health::{Answer, Current};
use crate::config::Admin;
use crate::exit::Failure;

/// What Prometheus calls its text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Shown {
    current: Current,
    metrics: PrometheusHandle,
}

/// Whoever serves it; ends it when told to.
pub struct Endpoint(Option<AbortHandle>);

impl Endpoint {
    pub fn abort(self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Serves `/healthz`, `/readyz` and `/metrics` in the background.
pub async fn serve(admin: &Admin, current: Current, metrics: PrometheusHandle) -> Result<Endpoint, Failure> {
    if !admin.enabled {
        return Ok(Endpoint(None));
    }
    let listener = tokio::net::TcpListener::bind(admin.listen).await.map_err(|error| {
        Failure::failed(format!(
            "admin.listen: {} cannot be listened on: {error}; choose another, or set admin.enabled = false",
            admin.listen
        ))
    })?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "health checks and metrics");
    let app = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(self::metrics))
        .with_state(Shown { current, metrics });
    let serving = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!("the admin endpoint ended: {error}");
        }
    });
    Ok(Endpoint(Some(serving.abort_handle())))
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
