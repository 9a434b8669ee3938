//! A relay process for fault tests.
//!
//! It takes its settings from the environment (see `Settings`), prints `worker <id>` for each of its dispatchers and
//! then `ready`, and at its end `stopped abandoned=<n> lease_lost=<n>`. SIGTERM stops it in good order: the exit code
//! is 0, or 4 if publishes had to be abandoned. It prints `lease lost` for every settle that was refused and
//! `conflict` for every statement that failed because of a deadlock or serialisation failure. It ends when its
//! standard input closes, so that it never outlives the test that started it.

use std::env::var;
use std::io::Read;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use postrider::layout::preset;
use postrider::{ClaimedMessage, Dispatcher, Layout, PostgresStore, PublishError, Store, callback};
use sqlx::postgres::PgPoolOptions;
use testkit::Source;
use testkit::checker::arrivals::Recorder;
use testkit::crash::{Crash, CrashingStore, Point};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};
use uuid::Uuid;

const ABANDONED: u8 = 4;
const TEST_IS_GONE: i32 = 5;

/// What the sink does with a message.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Records its arrival.
    Record,
    /// Prints `began <id>` and never answers.
    Hang,
    /// Aborts the process if the topic is `poison`, and records it otherwise.
    Poison,
    /// Fails the first attempt of some messages, too few to open the breaker, and records the others.
    Flaky,
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "record" => Ok(Self::Record),
            "hang" => Ok(Self::Hang),
            "poison" => Ok(Self::Poison),
            "flaky" => Ok(Self::Flaky),
            _ => bail!("{word} is no kind of sink"),
        }
    }
}

#[derive(Clone)]
struct Settings {
    database_url: String,
    arrivals_url: String,
    dispatchers: usize,
    connections: u32,
    lease: Duration,
    poll: Duration,
    concurrency: usize,
    batch: u32,
    max_rows: usize,
    max_attempts: u32,
    backoff: Duration,
    grace: Duration,
    sink: Kind,
    delay: Duration,
    /// Where the process ends by itself.
    crash: Option<Crash>,
    /// A preset, for a table of another shape on PostgreSQL; its locks last as long as a lease.
    layout: Option<String>,
}

impl Settings {
    fn from_env() -> Result<Self> {
        let database_url = var("DATABASE_URL").context("DATABASE_URL is not set")?;
        let batch = setting("BATCH", 50)?;
        Ok(Self {
            arrivals_url: var("ARRIVALS_URL").unwrap_or_else(|_| database_url.clone()),
            database_url,
            dispatchers: setting("DISPATCHERS", 1)?,
            connections: setting("CONNECTIONS", 5)?,
            lease: millis("LEASE_MS", 2_000)?,
            poll: millis("POLL_MS", 100)?,
            concurrency: setting("CONCURRENCY", 8)?,
            batch,
            max_rows: setting("MAX_ROWS", batch as usize * 2)?,
            max_attempts: setting("MAX_ATTEMPTS", 10)?,
            backoff: millis("BACKOFF_MS", 100)?,
            grace: millis("GRACE_MS", 10_000)?,
            sink: setting("SINK", Kind::Record)?,
            delay: millis("DELAY_MS", 0)?,
            crash: var("CRASH_AT").ok().map(|text| text.parse()).transpose()?,
            layout: var("LAYOUT").ok(),
        })
    }
}

fn setting<T: FromStr<Err: Into<anyhow::Error>>>(name: &str, default: T) -> Result<T> {
    match var(name) {
        Ok(text) => text.parse().map_err(Into::into).with_context(|| format!("{name} is {text}")),
        Err(_) => Ok(default),
    }
}

fn millis(name: &str, default: u64) -> Result<Duration> {
    Ok(Duration::from_millis(setting(name, default)?))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let lost = Arc::new(AtomicUsize::new(0));
    let log = fmt::layer()
        .with_writer(std::io::stderr)
        .with_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off")));
    tracing_subscriber::registry().with(log).with(Watch(lost.clone())).init();
    end_with_the_test();
    let settings = Settings::from_env()?;
    let stop = CancellationToken::new();
    let recorder = Recorder::connect(&settings.arrivals_url).await?;
    let dispatchers = join_all((0..settings.dispatchers).map(|_| dispatcher(&settings, recorder.clone()))).await;
    let dispatchers = dispatchers.into_iter().collect::<Result<Vec<_>>>()?;
    let running = dispatchers.into_iter().map(|dispatcher| tokio::spawn(dispatcher.run(stop.clone())));
    let running: Vec<_> = running.collect();
    let mut terminated = signal(SignalKind::terminate())?;
    println!("ready");
    terminated.recv().await;
    stop.cancel();
    let mut abandoned = 0;
    for ended in join_all(running).await {
        abandoned += ended?.abandoned;
    }
    println!("stopped abandoned={abandoned} lease_lost={}", lost.load(Ordering::SeqCst));
    Ok(if abandoned == 0 { ExitCode::SUCCESS } else { ABANDONED.into() })
}

/// Its connections bear the worker's id, so that the checkers know who changed a row, where the database has names for
/// connections.
async fn dispatcher(settings: &Settings, recorder: Recorder) -> Result<Dispatcher> {
    let worker = Uuid::now_v7();
    let store = store(settings, worker).await?;
    println!("worker {worker}");
    let store: Arc<dyn Store> = match settings.crash.clone() {
        Some(crash) => Arc::new(CrashingStore::new(store, crash)),
        None => store,
    };
    let ours = settings.clone();
    let sink = callback(move |message| publish(ours.clone(), recorder.clone(), message));
    let mut builder = Dispatcher::builder_shared(store, Arc::new(sink));
    if settings.crash.is_some() {
        builder = builder.purge_delivered_after(Duration::from_secs(3600));
    }
    Ok(builder
        .worker_id(worker)
        .lease(settings.lease)
        .poll_interval(settings.poll)
        .concurrency(settings.concurrency)
        .batch_size(settings.batch)
        .max_rows(settings.max_rows)
        .max_attempts(settings.max_attempts)
        .backoff(settings.backoff, settings.backoff * 10)
        .shutdown_grace(settings.grace)
        .build()?)
}

async fn store(settings: &Settings, worker: Uuid) -> Result<Arc<dyn Store>> {
    let Some(name) = &settings.layout else {
        let source = Source::connect(&settings.database_url, &worker.to_string(), settings.connections).await?;
        return Ok(source.store());
    };
    let pool = PgPoolOptions::new().max_connections(settings.connections).connect(&settings.database_url).await?;
    let layout = Layout { lock_timeout: settings.lease, ..preset(name)? };
    Ok(Arc::new(PostgresStore::with_layout(pool, layout)?))
}

async fn publish(settings: Settings, recorder: Recorder, message: ClaimedMessage) -> Result<(), PublishError> {
    let begun = SystemTime::now();
    let crash_at = |point| settings.crash.iter().for_each(|crash| crash.at(point));
    crash_at(Point::BeforePublish);
    match settings.sink {
        Kind::Poison if message.topic == "poison" => std::process::abort(),
        Kind::Flaky if message.attempts == 1 && message.id.as_bytes()[15].is_multiple_of(4) => {
            return Err(PublishError::retry("the first attempt fails"));
        }
        Kind::Hang => {
            println!("began {}", message.id);
            std::future::pending::<()>().await;
        }
        _ => {}
    }
    tokio::time::sleep(settings.delay).await;
    let mut recording = Box::pin(recorder.record(message, begun));
    let recorded = match futures::poll!(&mut recording) {
        Poll::Ready(recorded) => recorded,
        Poll::Pending => {
            // Sent, and perhaps written, but not answered.
            crash_at(Point::MidPublish);
            recording.await
        }
    };
    recorded.map_err(|error| PublishError::unknown(error.to_string()))?;
    crash_at(Point::AfterPublish);
    Ok(())
}

/// A thread of its own, because it must not depend on the runtime that the faults are about.
fn end_with_the_test() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(TEST_IS_GONE);
    });
}

/// Prints what the dispatchers' events tell of.
struct Watch(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Watch {
    fn on_event(&self, event: &tracing::Event<'_>, _: LayerContext<'_, S>) {
        let mut text = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            text.push_str(&format!("{}={value:?} ", field.name()));
        });
        if text.contains("message=lease lost") {
            self.0.fetch_add(1, Ordering::SeqCst);
            println!("lease lost");
        }
        if text.contains("kind=Conflict") {
            println!("conflict {text}");
        }
    }
}
