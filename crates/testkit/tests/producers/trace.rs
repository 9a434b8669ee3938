//! The producer's trace context travels in the headers.

use anyhow::{Context, Result};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use postrider::{Limits, Message};
use tracing::subscriber::with_default;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use super::fixture::{Fixture, order};

fn headers(message: Message) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&message.into_row(&Limits::default())?.headers)?)
}

/// Runs something under a subscriber that makes OpenTelemetry spans.
fn traced<T>(run: impl FnOnce() -> T) -> T {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    with_default(tracing_subscriber::registry().with(layer), run)
}

#[test]
fn the_traceparent_is_that_of_the_current_span() -> Result<()> {
    let (headers, expected) = traced(|| {
        let span = tracing::info_span!("place order");
        let _entered = span.enter();
        let context = span.context();
        let parent = context.span().span_context().clone();
        (headers(order(1)), format!("00-{}-{}-01", parent.trace_id(), parent.span_id()))
    });
    assert_eq!(headers?["traceparent"], expected);
    Ok(())
}

#[test]
fn without_a_span_there_is_no_header() -> Result<()> {
    assert_eq!(headers(order(1))?, serde_json::json!({}));
    assert_eq!(traced(|| headers(order(1)))?, serde_json::json!({}));
    Ok(())
}

#[test]
fn a_traceparent_given_by_the_producer_wins() -> Result<()> {
    let headers =
        traced(|| tracing::info_span!("place order").in_scope(|| headers(order(1).header("traceparent", "mine"))))?;
    assert_eq!(headers["traceparent"], "mine");
    Ok(())
}

#[test]
fn the_trace_context_of_an_enqueue_is_stored() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fixture = runtime.block_on(Fixture::new())?;
    let _new = traced(|| {
        let span = tracing::info_span!("place order");
        let _entered = span.enter();
        runtime.block_on(fixture.enqueue(order(1)))
    })?;
    let rows = runtime.block_on(fixture.rows())?;
    let parent = rows[0]["headers"]["traceparent"].as_str().context("no traceparent")?;
    assert_eq!(parent.len(), 55, "{parent}");
    Ok(())
}
