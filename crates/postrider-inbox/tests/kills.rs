//! R62 and R63: consumers are killed with SIGKILL at every step, and no effect is lost.
//!
//! A consumer is this program, run again as a child that handles some deliveries and ends itself at a chosen point. The
//! broker is the test: it brings every event again until it was acknowledged. What another inbox needs to be tested here
//! is a [`Mode`], a line in [`consumer`] and a test of two lines.
//!
//! Sizes are small for CI. `POSTRIDER_TEST_SCALE` multiplies events and kills.
#![cfg(feature = "redis")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_inbox::{ConsumerName, Delivery, Entry, Guard, Inbox, RedisGuard, RedisInbox};
use tempfile::TempDir;
use testkit::brokers::redis::Redis;
use testkit::{Signal, Worker};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(10);
/// Consumers that run at the same time.
const LANES: usize = 6;
/// Each is killed twice if it gets that far.
const EVENTS: usize = 300;
/// How many kills these events come to, at least.
const KILLS: usize = 480;

const MODE: &str = "POSTRIDER_TEST_KILLS_MODE";
const PLACE: &str = "POSTRIDER_TEST_KILLS_PLACE";
const WORK: &str = "POSTRIDER_TEST_KILLS_WORK";
const ACKS: &str = "POSTRIDER_TEST_KILLS_ACKS";

/// An inbox, and the record of effects that goes with it.
trait Mode: Sized {
    /// What the test keeps for as long as it runs.
    type Server;
    type Inbox: Inbox;
    const NAME: &'static str;
    /// Whether an effect happens exactly once, because it is committed together with the event.
    const IS_EXACT: bool;

    /// Starts what is needed and says where consumers find it.
    fn start() -> impl Future<Output = (Self::Server, String)>;
    /// The inbox as one process sees it.
    fn open(place: &str) -> impl Future<Output = Self>;
    fn inbox(&self) -> &Self::Inbox;
    /// Does what a handler does; it is durable, or part of the guard's transaction, when this returns.
    fn effect(&self, guard: &mut <Self::Inbox as Inbox>::Guard, event: Uuid) -> impl Future<Output = ()>;
    /// How often the effect has happened, by event.
    fn effects(&self) -> impl Future<Output = HashMap<Uuid, usize>>;
}

/// Redis, with a file as the place where effects happen.
struct OnRedis {
    inbox: RedisInbox,
    ledger: PathBuf,
}

impl Mode for OnRedis {
    type Server = (Redis, TempDir);
    type Inbox = RedisInbox;
    const NAME: &'static str = "redis";
    const IS_EXACT: bool = false;

    async fn start() -> (Self::Server, String) {
        let server = Redis::start().await.expect("Redis");
        let home = TempDir::new().expect("a directory");
        let place = format!("{} {}", server.url(), home.path().join("ledger").display());
        ((server, home), place)
    }

    async fn open(place: &str) -> Self {
        let (url, ledger) = place.split_once(' ').expect("an address and a file");
        let inbox = RedisInbox::builder(url).claim(Duration::from_millis(400)).build().expect("good settings");
        Self { inbox, ledger: ledger.into() }
    }

    fn inbox(&self) -> &RedisInbox {
        &self.inbox
    }

    async fn effect(&self, _: &mut RedisGuard, event: Uuid) {
        append(&self.ledger, event);
    }

    async fn effects(&self) -> HashMap<Uuid, usize> {
        let mut effects = HashMap::new();
        read(&self.ledger).into_iter().for_each(|event| *effects.entry(event).or_default() += 1);
        effects
    }
}

/// Where a consumer is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Point {
    BeforeBegin,
    AfterBegin,
    AfterEffect,
    MidCommit,
    AfterCommit,
    AfterAck,
    Never,
}

impl Point {
    const KILLS: [Self; 6] =
        [Self::BeforeBegin, Self::AfterBegin, Self::AfterEffect, Self::MidCommit, Self::AfterCommit, Self::AfterAck];

    fn parse(text: &str) -> Self {
        let all = Self::KILLS.into_iter().chain([Self::Never]);
        all.into_iter().find(|point| format!("{point:?}") == text).expect("a point")
    }

    /// Whether a repeat of the effect is allowed, where effect and event are not committed together.
    fn may_repeat(self) -> bool {
        matches!(self, Self::AfterEffect | Self::MidCommit)
    }

    fn at(self, here: Self) {
        if self == here {
            kill();
        }
    }
}

/// Ends this process as `kill -9` does.
fn kill() {
    nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGKILL).expect("it is killed");
    std::thread::park();
}

fn append(file: &Path, event: Uuid) {
    let mut file = OpenOptions::new().append(true).create(true).open(file).expect("a file");
    file.write_all(format!("{event}\n").as_bytes()).expect("it is written");
    file.sync_data().expect("it is on disk");
}

fn read(file: &Path) -> Vec<Uuid> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.parse().expect("an event in each line")).collect()
}

fn scale() -> usize {
    std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Not a test: a consumer, which handles what it is given and is killed where it is told.
#[tokio::test]
#[ignore = "run by the tests of this file"]
async fn consumer() {
    let Ok(mode) = std::env::var(MODE) else { return };
    match mode.as_str() {
        OnRedis::NAME => consume_all::<OnRedis>().await,
        other => panic!("{other} is no mode"),
    }
}

async fn consume_all<M: Mode>() {
    let variable = |name: &str| std::env::var(name).expect(name);
    let mode = M::open(&variable(PLACE)).await;
    for delivery in variable(WORK).split(' ') {
        let (event, point) = delivery.split_once('/').expect("an event and a point");
        let event = event.parse().expect("an event");
        consume(&mode, event, Point::parse(point), Path::new(&variable(ACKS))).await;
    }
}

async fn consume<M: Mode>(mode: &M, event: Uuid, die: Point, acks: &Path) {
    die.at(Point::BeforeBegin);
    let delivery = Delivery::new(ConsumerName::new("mailer").expect("a plain name"), event);
    let guard = loop {
        match mode.inbox().begin(&delivery).await {
            Ok(Entry::First(guard)) => break Some(guard),
            Ok(Entry::AlreadyProcessed) => break None,
            Ok(Entry::InProgress(_)) => tokio::time::sleep(AGAIN).await,
            Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
            other => panic!("{:?}", other.map(drop_guard)),
        }
    };
    if let Some(mut guard) = guard {
        die.at(Point::AfterBegin);
        mode.effect(&mut guard, event).await;
        die.at(Point::AfterEffect);
        if die == Point::MidCommit {
            // A few steps into the commit, not always the same number.
            let steps = async {
                for _ in 0..event.as_bytes()[15] % 16 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { biased; _ = guard.commit() => {} () = steps => {} }
            kill();
            return;
        }
        if let Err(error) = guard.commit().await {
            assert!(error.is_transient(), "{error:?}");
            return;
        }
        die.at(Point::AfterCommit);
    }
    append(acks, event);
    die.at(Point::AfterAck);
}

fn drop_guard<G>(entry: Entry<G>) -> &'static str {
    drop(entry);
    "another entry"
}

/// An event, and where those that handle it are killed.
struct Event {
    id: Uuid,
    to_come: VecDeque<Point>,
    died: Vec<Point>,
}

async fn no_effect_is_lost_when_consumers_are_killed<M: Mode>() {
    let (_server, place) = M::start().await;
    let home = TempDir::new().expect("a directory");
    let acks = home.path().join("acks");
    let points = |at: usize| [Point::KILLS[at % 6], Point::KILLS[(at / 6) % 6]].into();
    let event = |at| Event { id: Uuid::now_v7(), to_come: points(at), died: Vec::new() };
    let queue: Mutex<VecDeque<Event>> = Mutex::new((0..EVENTS * scale()).map(event).collect());
    let done: Mutex<Vec<Event>> = Mutex::default();
    let lane = async || {
        // The guard of the lock must not live until the event is put back.
        let next = || lock(&queue).pop_front();
        while let Some(mut event) = next() {
            let point = event.to_come.pop_front().unwrap_or(Point::Never);
            if run::<M>(&place, &acks, &format!("{}/{point:?}", event.id)).await {
                event.died.push(point);
            }
            match event.to_come.is_empty() {
                true => lock(&done).push(event),
                false => lock(&queue).push_back(event),
            }
        }
    };
    futures::future::join_all((0..LANES).map(|_| lane())).await;

    // The broker brings what was not acknowledged again, and then everything once more.
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let unacked: HashSet<Uuid> = read(&acks).into_iter().collect();
    let left: Vec<_> = done.iter().filter(|event| !unacked.contains(&event.id)).collect();
    for events in [left, done.iter().collect()] {
        for events in events.chunks(100) {
            let work: Vec<_> = events.iter().map(|event| format!("{}/Never", event.id)).collect();
            assert!(!run::<M>(&place, &acks, &work.join(" ")).await, "nobody killed it");
        }
    }
    let acked: HashSet<Uuid> = read(&acks).into_iter().collect();
    assert_eq!(acked.len(), done.len(), "every event is acknowledged in the end");

    let effects = M::open(&place).await.effects().await;
    let kills: usize = done.iter().map(|event| event.died.len()).sum();
    assert!(kills >= KILLS * scale(), "{kills} kills");
    for point in Point::KILLS {
        assert!(done.iter().any(|event| event.died.contains(&point)), "nobody died at {point:?}");
    }
    for event in &done {
        let count = effects.get(&event.id).copied().unwrap_or(0);
        let repeats = if M::IS_EXACT { 0 } else { event.died.iter().filter(|point| point.may_repeat()).count() };
        assert!(count >= 1, "an effect is lost: {:?}", event.died);
        assert!(count <= 1 + repeats, "{count} effects: {:?}", event.died);
    }
    let repeated = done.iter().filter(|event| effects.get(&event.id).is_some_and(|count| *count > 1)).count();
    assert_eq!(repeated == 0, M::IS_EXACT, "{repeated} effects happened more than once");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a consumer to its end and answers whether it was killed.
async fn run<M: Mode>(place: &str, acks: &Path, work: &str) -> bool {
    let acks = acks.to_str().expect("a plain path");
    let arguments = ["--exact", "consumer", "--ignored", "--nocapture", "--test-threads=1"];
    let variables = [(MODE, M::NAME), (PLACE, place), (WORK, work), (ACKS, acks)];
    let this = std::env::current_exe().expect("this program");
    let mut child = Worker::spawn(this, &arguments, &variables).expect("a child");
    let ended = child.wait(PATIENCE).await.expect("it ends");
    let is_killed = ended.signal() == Some(Signal::SIGKILL as i32);
    assert!(is_killed || ended.success(), "a consumer failed: {ended}");
    is_killed
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_r63_consumers_killed_at_every_step_lose_no_effect_on_redis() {
    no_effect_is_lost_when_consumers_are_killed::<OnRedis>().await;
}
