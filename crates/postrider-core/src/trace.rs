//! The W3C trace context of the producer, carried in the headers `traceparent` and `tracestate`.

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

/// Without the feature `otel` there is no trace context to capture.
#[cfg(not(feature = "otel"))]
pub fn current() -> Vec<(&'static str, String)> {
    Vec::new()
}
