//! R58: one dead or slow endpoint among fifty does not hold up the others.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider_core::{BreakerConfig, Dispatcher, Message, Outcome, Route, Router, Sink};
use postrider_sinks::HttpClient;
use postrider_store::MemoryStore;
use support::{Reply, Server, destination, json, local, message, status};
use testkit::{eventually, quickly};
use tokio_util::sync::CancellationToken;

const ENDPOINTS: usize = 50;
/// Messages that wait for the first endpoint when the run begins.
const BACKLOG: usize = 1_000;
const ROUNDS: usize = 50;
/// Before this round connections are made, and those who wait for a dead endpoint have not yet lost their patience.
const FIRST_MEASURED: usize = 10;
const RUNS: usize = 10;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(75);

const PATIENCE: Duration = Duration::from_secs(120);
/// Of a breaker: longer than a machine stands still.
const PAUSE: Duration = Duration::from_secs(6);

const ANSWER: &[u8] = b"HTTP/1.1 204 OK\r\ncontent-length: 0\r\n\r\n";

type Times = Arc<Mutex<HashMap<String, Instant>>>;

/// What one run saw at the endpoints that work.
struct Run {
    p99: Duration,
    arrived: usize,
    /// Requests to the first endpoint.
    requests: usize,
    took: Duration,
}

/// Runs a real dispatcher. The first endpoint answers as `first` says, or has no messages.
async fn run(first: Option<fn() -> Reply>) -> Run {
    let began = Instant::now();
    let arrived: Times = Times::default();
    let requests: Arc<AtomicUsize> = Arc::default();
    let mut servers = Vec::new();
    for at in 0..ENDPOINTS {
        let (arrived, requests) = (arrived.clone(), requests.clone());
        let server = Server::start(move |request| {
            if at == 0 {
                requests.fetch_add(1, Ordering::Relaxed);
                return first.map_or_else(|| status(204), |first| first());
            }
            arrived.lock().expect("not poisoned").entry(request.headers["ce-id"].clone()).or_insert_with(Instant::now);
            status(204)
        });
        servers.push(server.await);
    }
    let client = HttpClient::new(&local()).expect("a client");
    let routes = servers.iter().enumerate().map(|(at, server)| {
        let sink = client.sink(destination(&server.url("/hook"))).expect("a sink");
        Route::to("hooks", Arc::new(sink)).topic(&format!("to.{at}"))
    });
    let router = Router::new(routes.collect(), BreakerConfig::default());
    let store = MemoryStore::new();
    let backlog = if first.is_some() { BACKLOG } else { 0 };
    let backlog: Vec<Message> = (0..backlog).map(|at| Message::json("shop", "to.0", &at)).collect();
    enqueue(&store, backlog).await;
    let dispatcher = Dispatcher::builder(store.clone(), router).shutdown_grace(Duration::from_millis(100));
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.build().expect("a dispatcher").run(stop.clone()));
    let mut enqueued = Vec::new();
    for round in 0..ROUNDS {
        let messages: Vec<Message> =
            (1..ENDPOINTS).map(|at| Message::json("shop", format!("to.{at}"), &round)).collect();
        let now = Instant::now();
        enqueued.extend(messages.iter().map(|message| (message.id().to_string(), now, round)));
        enqueue(&store, messages).await;
        tokio::time::sleep_until((now + BETWEEN_ROUNDS).into()).await;
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while arrived.lock().expect("not poisoned").len() < enqueued.len() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    let _ = running.await.expect("it ended");
    let arrived = arrived.lock().expect("not poisoned");
    let measured = enqueued.iter().filter(|(_, _, round)| *round >= FIRST_MEASURED);
    let taken = measured.filter_map(|(id, then, _)| arrived.get(id).map(|now| *now - *then));
    let mut taken: Vec<Duration> = taken.collect();
    taken.sort();
    let p99 = taken.get(taken.len() * 99 / 100).copied().unwrap_or(Duration::from_secs(3_600));
    Run { p99, arrived: arrived.len(), requests: requests.load(Ordering::Relaxed), took: began.elapsed() }
}

async fn enqueue(store: &MemoryStore, messages: Vec<Message>) {
    let outbox = store.outbox();
    let mut transaction = store.begin();
    for message in messages {
        outbox.enqueue(&mut transaction, message).await.expect("enqueued");
    }
    transaction.commit();
}

/// Machines that run tests are busy with other things, too: one quiet run of several will do. Without isolation the
/// others wait for seconds, in every run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r58_one_dead_or_slow_endpoint_does_not_hold_up_the_others() {
    let all = (ENDPOINTS - 1) * ROUNDS;
    let mut seen = Vec::new();
    for _ in 0..RUNS {
        let without = run(None).await;
        let dead = run(Some(|| Reply::Silence)).await;
        let slow = run(Some(|| Reply::After(Duration::from_millis(500), ANSWER.to_vec()))).await;
        assert_eq!((without.arrived, dead.arrived, slow.arrived), (all, all, all));
        let turns = 1 + usize::try_from(dead.took.as_secs() / local().timeout.as_secs()).expect("a number");
        assert!(dead.requests <= 8 * turns, "{} requests to the dead endpoint in {turns} time limits", dead.requests);
        let limit = without.p99 * 2 + Duration::from_millis(500);
        seen.push(format!(
            "p99 without {:?}, dead {:?}, slow {:?} with {} requests",
            without.p99, dead.p99, slow.p99, slow.requests
        ));
        // The slow one is used as far as it goes.
        if dead.p99 < limit && slow.p99 < limit && slow.requests > 30 {
            println!("{seen:#?}");
            return;
        }
    }
    panic!("{seen:#?}");
}

/// A port of this machine at which nobody listens.
fn closed() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r58_an_endpoint_that_refuses_with_a_backlog_in_front_does_not_hold_up_the_others() {
    quickly(Duration::from_secs(3), one_refuses).await;
}

async fn one_refuses() {
    let servers = [Server::start(|_| status(204)).await, Server::start(|_| status(204)).await];
    let client = HttpClient::new(&local()).expect("a client");
    let urls = [format!("http://{}/", closed()), servers[0].url("/"), servers[1].url("/")];
    let routes = urls.iter().enumerate().map(|(at, url)| {
        let sink = client.sink(destination(url)).expect("a sink");
        Route::to("hooks", Arc::new(sink)).topic(&format!("to.{at}"))
    });
    let router = Router::new(routes.collect(), BreakerConfig::default());
    let store = MemoryStore::new();
    enqueue(&store, (0..2_000).map(|at| Message::json("shop", "to.0", &at)).collect()).await;
    enqueue(&store, (0..100).map(|at| Message::json("shop", format!("to.{}", 1 + at % 2), &at)).collect()).await;
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder(store.clone(), router).build().expect("a dispatcher");
    let pulse = dispatcher.pulse();
    let begun = Instant::now();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let arrived = || servers.iter().map(|server| server.received.lock().expect("not poisoned").len()).sum::<usize>();
    while arrived() < 100 && begun.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let open = pulse.signs().breaker_open;
    stop.cancel();
    let _ = running.await.expect("it ended");
    assert_eq!(arrived(), 100);
    assert!(!open, "claiming never stops for one of several");
    let spent: i32 = store.enqueued().iter().filter(|row| row.topic == "to.0").map(|row| row.attempts).sum();
    assert!(spent <= 16, "{spent} attempts were spent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r58_a_dead_endpoint_costs_its_messages_no_attempts_once_it_is_known() {
    let server = Server::start(|_| status(503)).await;
    let mut config = local();
    config.breaker_failures = 3;
    config.breaker_first_pause = PAUSE;
    let client = HttpClient::new(&config).expect("a client");
    let one = client.sink(destination(&server.url("/one"))).expect("a sink");
    let two = client.sink(destination(&server.url("/two"))).expect("a sink");
    // An origin that is alone is left to the dispatcher's own breaker, which keeps the backlog in the table.
    for _ in 0..5 {
        assert_eq!(one.publish(&[message("n", "t", json("1"))]).await[0].kind(), "retry");
    }
    assert_eq!(server.take().len(), 5);
    let elsewhere = Server::start(|_| status(200)).await;
    let _other = client.sink(destination(&elsewhere.url("/"))).expect("a sink");
    for _ in 0..3 {
        assert_eq!(one.publish(&[message("n", "t", json("1"))]).await[0].kind(), "retry");
    }
    for sink in [&one, &two] {
        let outcome = sink.publish(&[message("n", "t", json("1"))]).await;
        assert!(
            matches!(outcome.as_slice(), [Outcome::Busy { .. }]),
            "routes to one origin share its breaker: {outcome:?}"
        );
    }
    assert_eq!(server.take().len(), 3);
    // After the pause it is tried.
    eventually(PATIENCE, || async {
        let trial = two.publish(&[message("n", "t", json("1"))]).await;
        assert!(matches!(trial.as_slice(), [Outcome::Busy { .. }]), "a failed trial costs nothing: {trial:?}");
        server.take().len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r58_nor_does_one_that_hangs_and_what_cannot_be_sent_does_not_hide_it() {
    let server = Server::start(|_| Reply::Silence).await;
    let mut config = local();
    config.timeout = Duration::from_secs(3);
    config.connect_timeout = Duration::from_secs(3);
    config.breaker_failures = 3;
    config.breaker_first_pause = PAUSE;
    let client = HttpClient::new(&config).expect("a client");
    let hangs = client.sink(destination(&server.url("/{key}"))).expect("a sink");
    assert!(!hangs.minds_outages(), "a single origin is left to the dispatcher");
    let elsewhere = Server::start(|_| status(200)).await;
    let _other = client.sink(destination(&elsewhere.url("/"))).expect("a sink");
    assert!(hangs.minds_outages());
    let keyed = || {
        let mut keyed = message("n", "t", json("1"));
        keyed.key = Some("k".into());
        keyed
    };
    for _ in 0..3 {
        assert_eq!(hangs.publish(&[keyed()]).await[0].kind(), "unknown");
        assert_eq!(hangs.publish(&[message("n", "t", json("1"))]).await[0].kind(), "unsendable");
    }
    assert_eq!(hangs.publish(&[keyed()]).await[0].kind(), "busy", "it is left alone");
    assert_eq!(server.take().len(), 3);
    // After the pause it is tried.
    eventually(PATIENCE, || async {
        assert_eq!(hangs.publish(&[keyed()]).await[0].kind(), "busy", "a trial that hangs costs no attempt");
        server.take().len() == 1
    })
    .await;
}

#[test]
fn requests_are_counted_by_sink_and_class_only() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let server = Server::start(|request| status(request.path[1..].parse().expect("a status"))).await;
            let client = HttpClient::named("hooks", &local()).expect("a client");
            for code in [200, 204, 302, 404, 503] {
                let sink = client.sink(destination(&server.url(&format!("/{code}")))).expect("a sink");
                sink.publish(&[message("n", "t", json("1"))]).await;
            }
            let sink = client.sink(destination(&format!("http://{}/", closed()))).expect("a sink");
            sink.publish(&[message("n", "t", json("1"))]).await;
        });
    });
    let mut counted: Vec<(String, u64)> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<String> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let DebugValue::Counter(count) = value else { panic!("{value:?}") };
        counted.push((format!("{} {}", key.key().name(), labels.join(" ")), count));
    }
    counted.sort();
    let expected = [("2xx", 2), ("3xx", 1), ("4xx", 1), ("5xx", 1), ("none", 1)];
    let expected =
        expected.map(|(class, count)| (format!("postrider_http_requests_total sink=hooks status={class}"), count));
    assert_eq!(counted, expected);
}
