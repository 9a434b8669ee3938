//! Logs, metrics and traces of the relay.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::args::Colour;
use crate::config::{Config, Log, LogFormat};
use crate::exit::Failure;
use crate::output::is_coloured;

/// What a source's dispatcher tells of the moment.
const GAUGES: [&str; 6] = [
    "postrider_backlog",
    "postrider_due",
    "postrider_processing",
    "postrider_dead",
    "postrider_oldest_due_seconds",
    "postrider_breaker_open",
];
/// How long a stop waits for the collector of traces.
const LAST_TRACES: Duration = Duration::from_secs(2);
/// How often the recorder tidies up.
const UPKEEP: Duration = Duration::from_secs(5);
/// Bounds of the histograms, in seconds.
const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 300.0, 3_600.0];
/// Libraries that would log what goes over the wire, and what may be heard of each.
const TALKATIVE: [(&str, &str); 22] = [
    ("amq_protocol", "off"),
    ("async_nats", "warn"),
    ("aws_config", "warn"),
    ("aws_runtime", "warn"),
    ("aws_sdk_sns", "warn"),
    ("aws_sdk_sqs", "warn"),
    ("aws_sigv4", "warn"),
    ("aws_smithy_http_client", "warn"),
    ("aws_smithy_runtime", "warn"),
    ("google_cloud_auth", "warn"),
    ("google_cloud_gax_internal", "warn"),
    ("google_cloud_pubsub", "warn"),
    ("h2", "warn"),
    ("hyper", "warn"),
    ("hyper_util", "warn"),
    // It prints messages that come back.
    ("lapin", "off"),
    ("opentelemetry", "warn"),
    ("redis", "warn"),
    ("reqwest", "warn"),
    ("rustls", "warn"),
    ("sqlx", "warn"),
    ("tonic", "warn"),
];

/// What the relay tells of itself.
pub struct Telemetry {
    pub metrics: PrometheusHandle,
    level: reload::Handle<EnvFilter, Registry>,
    traces: Option<SdkTracerProvider>,
}

/// Begins to log, count and trace.
pub fn start(config: &Config, colour: Colour) -> Result<Telemetry, Failure> {
    let (filter, level) = reload::Layer::new(filter(&config.log)?);
    let traces = config.trace.otlp_endpoint.as_deref().map(exporter).transpose()?;
    let spans = traces.as_ref().map(|provider| {
        let publishes = tracing_subscriber::filter::Targets::new().with_target("postrider_core", tracing::Level::DEBUG);
        tracing_opentelemetry::layer().with_tracer(provider.tracer("postrider")).with_filter(publishes)
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match config.log.format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
        LogFormat::Pretty => lines.with_ansi(is_coloured(colour, &std::io::stderr())).boxed(),
    };
    let lines = lines.with_filter(filter);
    let registry = tracing_subscriber::registry().with(lines).with(spans);
    registry.try_init().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Telemetry { metrics: recorder()?, level, traces })
}

fn filter(log: &Log) -> Result<EnvFilter, Failure> {
    let refused = |error: &dyn std::error::Error| Failure::usage(format!("log.level: {error}"));
    let filter = EnvFilter::try_new(&log.level).map_err(|error| refused(&error))?;
    TALKATIVE.iter().try_fold(filter, |filter, (library, level)| {
        let quiet = format!("{library}={level}").parse();
        Ok(filter.add_directive(quiet.map_err(|error: tracing_subscriber::filter::ParseError| refused(&error))?))
    })
}

fn recorder() -> Result<PrometheusHandle, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::failed(format!("metrics cannot be kept: {error}"));
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS)
        .map_err(|error| failed(&error))?
        .install_recorder()
        .map_err(|error| failed(&error))?;
    metrics_process::Collector::default().describe();
    metrics::describe_counter!("postrider_reloads_total", "Reloads of the configuration by result.");
    metrics::describe_counter!("postrider_sink_published_total", "Publishes by sink and outcome.");
    metrics::describe_histogram!(
        "postrider_sink_publish_seconds",
        metrics::Unit::Seconds,
        "Time of one call of a sink."
    );
    metrics::describe_counter!("postrider_unrouted_total", "Publishes put off because no route is for the message.");
    metrics::describe_gauge!("postrider_build_info", "1, with the version as a label.");
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            metrics::gauge!("postrider_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Sends spans to a collector.
fn exporter(endpoint: &str) -> Result<SdkTracerProvider, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("traces cannot be sent: {error}"));
    let endpoint = endpoint.to_owned();
    // Its client blocks and brings a runtime of its own, which must not be made on a thread of ours.
    let exporter = std::thread::spawn(move || {
        opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_headers(std::collections::HashMap::new())
            .with_endpoint(endpoint)
            .build()
    });
    let exporter = exporter.join().map_err(|_| failed(&"the exporter failed"))?.map_err(|error| failed(&error))?;
    let resource = Resource::builder().with_service_name("postrider").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

impl Telemetry {
    /// Logs at another level from now on.
    pub fn set_level(&self, log: &Log) -> Result<(), Failure> {
        self.level.reload(filter(log)?).map_err(|error| Failure::failed(error.to_string()))
    }

    /// Sends what has not been sent yet.
    pub async fn flush(self) {
        let Some(traces) = self.traces else { return };
        let sending = tokio::task::spawn_blocking(move || traces.shutdown());
        match tokio::time::timeout(LAST_TRACES, sending).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the last traces were not sent: {error}"),
            _ => tracing::warn!("the last traces were not sent: the collector does not answer"),
        }
    }
}

/// Takes back what was told of a source that is gone, so that no alert goes on about it.
pub fn forget(source: &str) {
    for gauge in GAUGES {
        metrics::gauge!(gauge, "dispatcher" => source.to_owned()).set(0.0);
    }
}
