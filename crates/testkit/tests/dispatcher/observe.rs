//! What an operator sees.

use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider::{BreakerConfig, Dispatcher, MemoryStore, Message, Outcome, Route, Router, Sink};

use crate::scene::{Recorder, enqueue, message};

/// Runs a dispatcher with a recorder of its own until everything is settled; answers metric values by name.
fn measured(sink: impl Sink, messages: Vec<Message>, seconds: u64) -> Vec<(String, DebugValue)> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = MemoryStore::new();
            for message in messages {
                enqueue(&store, message).await;
            }
            let builder = Dispatcher::builder(store.clone(), sink).name("orders").max_attempts(2);
            let running = crate::scene::Running::start(builder);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let _ended = running.stop().await;
        });
    });
    let name = |key: &metrics::Key| {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    };
    snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (name(key.key()), value)).collect()
}

fn value<'a>(metrics: &'a [(String, DebugValue)], name: &str) -> &'a DebugValue {
    let found = metrics.iter().find(|(key, _)| key == name);
    &found.unwrap_or_else(|| panic!("no metric {name} among {metrics:?}")).1
}

#[test]
fn messages_without_a_route_are_counted_by_dispatcher() {
    let routes = vec![Route::to("sink", Arc::new(Recorder::accepting())).topic("known")];
    let router = Router::new(routes, BreakerConfig::default()).named("orders");
    let metrics = measured(router, vec![message("unknown"), message("known")], 10);
    assert_eq!(value(&metrics, "postrider_unrouted_total{dispatcher=orders}"), &DebugValue::Counter(1));
    assert_eq!(value(&metrics, "postrider_published_total{dispatcher=orders,outcome=busy}"), &DebugValue::Counter(1));
}

#[test]
fn s0_6_outcomes_latencies_backlog_and_dead_rows_are_metrics() {
    let sink = Recorder::answering(|message| match message.topic.as_str() {
        "bad" => Outcome::Reject("no".into()),
        "odd" => Outcome::Unsendable("it has no key".into()),
        "flaky" if message.attempts == 1 => Outcome::retry("once"),
        _ => Outcome::Accepted,
    });
    let messages = vec![message("good"), message("bad"), message("odd"), message("flaky"), message("good")];
    let metrics = measured(sink, messages, 120);
    let counter = |name: &str| match value(&metrics, name) {
        DebugValue::Counter(count) => *count,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(counter("postrider_claimed_total{dispatcher=orders}"), 6);
    assert_eq!(counter("postrider_published_total{dispatcher=orders,outcome=accepted}"), 3);
    assert_eq!(counter("postrider_published_total{dispatcher=orders,outcome=reject}"), 1);
    assert_eq!(counter("postrider_published_total{dispatcher=orders,outcome=unsendable}"), 1);
    assert_eq!(counter("postrider_published_total{dispatcher=orders,outcome=retry}"), 1);
    assert_eq!(counter("postrider_retried_total{dispatcher=orders}"), 1);
    assert_eq!(counter("postrider_buried_total{dispatcher=orders}"), 2);
    assert_eq!(counter("postrider_lease_lost_total{dispatcher=orders}"), 0);
    let gauge = |name: &str| match value(&metrics, name) {
        DebugValue::Gauge(value) => value.into_inner(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(gauge("postrider_dead{dispatcher=orders}"), 2.0);
    assert_eq!(gauge("postrider_backlog{dispatcher=orders}"), 0.0);
    assert_eq!(gauge("postrider_oldest_due_seconds{dispatcher=orders}"), 0.0);
    let samples = |name: &str| match value(&metrics, name) {
        DebugValue::Histogram(samples) => samples.len(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(samples("postrider_publish_seconds{dispatcher=orders}"), 6);
    assert_eq!(samples("postrider_delivery_seconds{dispatcher=orders}"), 3);
}

#[test]
fn payloads_headers_and_error_texts_never_reach_a_log() {
    // With a single subscriber in the process, an event that another test's thread meets first would count as wanted by
    // nobody.
    let _set_by_another_test = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    let subscriber = subscriber.with_writer(log.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let secret = serde_json::json!({ "card": "canary-payload" });
        let marked = |topic| Message::json("shop", topic, &secret).header("authorization", "canary-header");
        let sink = Recorder::answering(|message| match message.topic.as_str() {
            "bad" => Outcome::Reject("canary-error".into()),
            _ => Outcome::retry("canary-error"),
        });
        measured(sink, vec![marked("bad"), marked("flaky")], 120);
        let message = marked("shown");
        tracing::info!(?message, row = ?marked("shown").into_row(&postrider::Limits::default()), "shown");
    });
    let text = String::from_utf8(log.0.lock().expect("no writer panics").clone()).expect("logs are UTF-8");
    assert!(text.contains("message is dead") && text.contains("will be tried again"), "{text}");
    for canary in ["canary-payload", "canary-header", "canary-error"] {
        assert!(!text.contains(canary), "{canary} is in the log:\n{text}");
    }
    assert!(text.contains("event_id=") && text.contains("attempt=1") && text.contains("topic=\"bad\""), "{text}");
}

#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
