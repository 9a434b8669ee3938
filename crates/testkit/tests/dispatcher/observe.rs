//! What an operator sees.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider::dispatch::DispatcherBuilder;
use postrider::state::State;
use postrider::{BreakerConfig, Dispatcher, MemoryStore, Message, Outcome, Route, Router, Sink, Store};

use crate::leases::steal;
use crate::scene::{Recorder, Running, enqueue, message, until};

/// Runs a dispatcher with a recorder of its own until everything is settled; answers metric values by name.
fn measured(sink: impl Sink, messages: Vec<Message>, seconds: u64) -> Vec<(String, DebugValue)> {
    measured_with(sink, messages, seconds, |builder| builder)
}

fn measured_with(
    sink: impl Sink,
    messages: Vec<Message>,
    seconds: u64,
    adapt: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder,
) -> Vec<(String, DebugValue)> {
    let begin = async |store: MemoryStore| {
        for message in messages {
            enqueue(&store, message).await;
        }
        adapt(Dispatcher::builder(store, sink).name("orders").max_attempts(2))
    };
    measured_from(begin, seconds)
}

/// The same for a dispatcher that is described once its store is there.
fn measured_from(begin: impl AsyncFnOnce(MemoryStore) -> DispatcherBuilder, seconds: u64) -> Vec<(String, DebugValue)> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let running = Running::start(begin(MemoryStore::new()).await);
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
fn t01_a_settle_that_touched_nothing_counts_as_a_lost_lease_and_not_as_a_delivery() {
    let metrics = measured_from(
        async |store| {
            enqueue(&store, message("slow")).await;
            let table = store.clone();
            // Somebody else claims the row while it is under way.
            let sink = Recorder::answering(move |message| {
                table.edit(message.id, |row| row.attempts += 1);
                Outcome::Accepted
            });
            Dispatcher::builder(store, sink).name("orders")
        },
        10,
    );
    assert_eq!(value(&metrics, "postrider_lease_lost_total{dispatcher=orders}"), &DebugValue::Counter(1));
    let delivered = metrics.iter().find(|(name, _)| name == "postrider_delivery_seconds{dispatcher=orders}");
    assert!(
        !delivered.is_some_and(|(_, value)| matches!(value, DebugValue::Histogram(samples) if !samples.is_empty()))
    );
}

#[test]
fn i9_metrics_agree_with_the_table() {
    let kept = Arc::new(OnceLock::new());
    let store = kept.clone();
    let begin = async |table: MemoryStore| {
        store.set(table.clone()).expect("there is one store");
        for topic in ["good", "bad", "good", "flaky", "good", "hopeless"].into_iter().cycle().take(120) {
            enqueue(&table, message(topic)).await;
        }
        let sink = Recorder::answering(|message| match message.topic.as_str() {
            "bad" => Outcome::Reject("no".into()),
            "flaky" if message.attempts < 3 => Outcome::retry("not yet"),
            "hopeless" => Outcome::Unknown("no answer".into()),
            _ => Outcome::Accepted,
        });
        // When only those are left that fail, it must not be taken for an outage.
        let breaker = BreakerConfig { failures: 1_000, ..BreakerConfig::default() };
        Dispatcher::builder(table, sink).name("orders").max_attempts(3).breaker(breaker)
    };
    let metrics = measured_from(begin, 600);
    let rows = kept.get().expect("it was set").enqueued();
    let of = |state| rows.iter().filter(|row| row.status == state).count();
    let (delivered, dead) = (of(State::Delivered), of(State::Dead));
    assert_eq!((delivered, dead), (80, 40), "nothing waits any more");
    let attempts: usize = rows.iter().map(|row| row.attempts as usize).sum();
    let number = |name: &str| match value(&metrics, &format!("postrider_{name}{{dispatcher=orders}}")) {
        DebugValue::Counter(count) => *count as usize,
        DebugValue::Gauge(value) => value.into_inner() as usize,
        DebugValue::Histogram(samples) => samples.len(),
    };
    assert_eq!(number("claimed_total"), attempts);
    assert_eq!(number("publish_seconds"), attempts);
    assert_eq!(number("delivery_seconds"), delivered);
    assert_eq!(number("buried_total"), dead);
    assert_eq!(number("retried_total"), attempts - delivered - dead);
    assert_eq!((number("dead"), number("backlog")), (dead, 0));
}

#[test]
fn r24_metrics_have_a_tenant_if_that_is_asked_for_and_only_so_many() {
    let sink = || {
        Recorder::answering(|message| match message.topic.as_str() {
            "bad" => Outcome::Reject("no".into()),
            "flaky" if message.attempts == 1 => Outcome::retry("once"),
            _ => Outcome::Accepted,
        })
    };
    let tenant = uuid::Uuid::from_u128;
    let messages = || {
        let of = |topic, number| message(topic).tenant(tenant(number));
        vec![of("good", 1), of("bad", 1), of("flaky", 2), of("good", 3), of("good", 4), message("good")]
    };
    let metrics = measured_with(sink(), messages(), 120, |builder| builder.tenant_metrics(2).concurrency(1));
    let counter = |name: String| match value(&metrics, &name) {
        DebugValue::Counter(count) => *count,
        other => panic!("{name} is {other:?}"),
    };
    let accepted = |tenant: &str| {
        counter(format!("postrider_published_total{{dispatcher=orders,tenant={tenant},outcome=accepted}}"))
    };
    assert_eq!((accepted(&tenant(1).to_string()), accepted(&tenant(2).to_string())), (1, 1));
    assert_eq!((accepted("other"), accepted("none")), (2, 1), "the third and fourth have no value of their own");
    assert_eq!(counter(format!("postrider_buried_total{{dispatcher=orders,tenant={}}}", tenant(1))), 1);
    assert_eq!(counter(format!("postrider_retried_total{{dispatcher=orders,tenant={}}}", tenant(2))), 1);
    let samples = value(&metrics, &format!("postrider_delivery_seconds{{dispatcher=orders,tenant={}}}", tenant(1)));
    assert!(matches!(samples, DebugValue::Histogram(samples) if samples.len() == 1), "{samples:?}");
    let plain = measured(sink(), messages(), 120);
    assert!(!plain.iter().any(|(name, _)| name.contains("tenant=")), "{plain:?}");
    assert_eq!(value(&plain, "postrider_published_total{dispatcher=orders,outcome=accepted}"), &DebugValue::Counter(5));
}

#[test]
fn s0_73_a_lost_lease_is_in_the_log_and_no_nack_follows() {
    let (store, sink) = (MemoryStore::new(), Recorder::accepting().slow(Duration::from_secs(1)));
    let text = logged(|| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let id = enqueue(&store, message("slow")).await;
            let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()).name("orders"));
            until("it is under way", || sink.arrivals().len() == 1).await;
            store.edit(id, |row| row.locked_until_micros = Some(0));
            let stolen = store.claim(&steal(1, Duration::from_secs(600))).await.expect("a claim");
            assert_eq!(stolen.messages.len(), 1);
            tokio::time::sleep(Duration::from_secs(5)).await;
            let _ended = running.stop().await;
        });
    });
    let row = &store.enqueued()[0];
    assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (State::Processing, 2, None));
    let line = text.lines().find(|line| line.contains("lease lost")).expect("it is said");
    assert!(line.contains("WARN") && line.contains(&format!("event_id={}", row.id)), "{line}");
    assert!(!text.contains("will be tried again"), "{text}");
}

/// What is logged meanwhile.
fn logged(run: impl FnOnce()) -> String {
    // With a single subscriber in the process, an event that another test's thread meets first would count as wanted by
    // nobody.
    let _set_by_another_test = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    let subscriber = subscriber.with_writer(log.clone()).finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = log.0.lock().expect("no writer panics").clone();
    String::from_utf8(text).expect("logs are UTF-8")
}

#[test]
fn s3_17_s4_37_log_lines_name_the_event_its_aggregate_and_what_it_belongs_to() {
    let text = logged(|| {
        let sink = Recorder::answering(|message| match message.topic.as_str() {
            "bad" => Outcome::Reject("no".into()),
            "flaky" if message.attempts == 1 => Outcome::retry("once"),
            _ => Outcome::Accepted,
        });
        let event = |topic| {
            let message =
                message(topic).key("o-7").header("event-type", "order_created").header("aggregate-type", "order");
            message.header("correlation-id", "c-7").header("channel-message-id", "m-7")
        };
        measured(sink, vec![event("good"), event("bad"), event("flaky")], 120);
    });
    let named = [
        "event_id=",
        "event_type=\"order_created\"",
        "aggregate_type=\"order\"",
        "aggregate_id=\"o-7\"",
        "correlation_id=\"c-7\"",
        "channel_message_id=\"m-7\"",
    ];
    for said in ["message is delivered", "message is dead", "message will be tried again"] {
        let line =
            text.lines().find(|line| line.contains(said)).unwrap_or_else(|| panic!("{said} is not said:\n{text}"));
        assert!(named.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn payloads_headers_and_error_texts_never_reach_a_log() {
    let text = logged(|| {
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
