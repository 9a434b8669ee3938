//! The W3C trace context of the producer, carried in the headers `traceparent` and `tracestate`.

use crate::store::Headers;

/// The header that carries the producer's span.
pub const TRACEPARENT: &str = "traceparent";
/// The header that carries vendors' additions to it.
pub const TRACESTATE: &str = "tracestate";

/// The trace context of the current tracing span: header names and values, or nothing when there is none.
#[cfg(feature = "otel")]
pub fn current() -> Vec<(&'static str, String)> {
    use opentelemetry::trace::TraceContextExt as _;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    if !span.is_valid() {
        return Vec::new();
    }
    let parent = format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    let state = span.trace_state().header();
    let mut headers = vec![(TRACEPARENT, parent)];
    if !state.is_empty() {
        headers.push((TRACESTATE, state));
    }
    headers
}

/// Makes the producer's span, as its headers tell of it, the parent of a span.
#[cfg(feature = "otel")]
pub fn adopt(span: &tracing::Span, headers: &Headers) {
    use opentelemetry::trace::TraceContextExt as _;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    if let Some(parent) = headers.get(TRACEPARENT).and_then(|text| parse(text)) {
        // It fails only where no OpenTelemetry layer is installed, and then there is nothing to link.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
}

/// Reads `00-<trace id>-<span id>-<flags>`; anything else is no trace context.
#[cfg(feature = "otel")]
fn parse(text: &str) -> Option<opentelemetry::trace::SpanContext> {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

    let mut parts = text.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default())).filter(SpanContext::is_valid)
}

/// Without the feature `otel` there is no trace to go on with.
#[cfg(not(feature = "otel"))]
pub fn adopt(_span: &tracing::Span, _headers: &Headers) {}

/// Without the feature `otel` there is no trace context to capture.
#[cfg(not(feature = "otel"))]
pub fn current() -> Vec<(&'static str, String)> {
    Vec::new()
}
