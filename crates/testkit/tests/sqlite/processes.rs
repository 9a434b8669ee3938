//! r47: writers and relays in processes of their own on one file, killed at random.

use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use testkit::{Signal, Worker, within};
use tokio::time::Instant;
use uuid::Uuid;

use super::scene::{OnFile, message, put};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sqlite_process");
const WRITERS: usize = 4;
const RELAYS: usize = 2;
/// The most rows a relay has in hand; as in the program.
const IN_HAND: usize = 100;
const LIMIT: Duration = Duration::from_secs(120);

fn scale() -> usize {
    std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn dice(sides: usize) -> usize {
    usize::from(u16::from_le_bytes([Uuid::new_v4().as_bytes()[0], Uuid::new_v4().as_bytes()[1]])) % sides
}

struct Processes<'a> {
    scene: &'a OnFile,
    messages: usize,
    running: Vec<Worker>,
    /// How often a writer could not have the write lock.
    busy: usize,
}

impl Processes<'_> {
    fn start(&self, place: usize) -> Worker {
        let file = self.scene.file("outbox.db");
        let (role, last) = match place < WRITERS {
            true => ("writer", self.messages.to_string()),
            false => ("relay", self.arrivals(place).display().to_string()),
        };
        Worker::spawn(PROGRAM, &[role, &file.display().to_string(), &last], &[]).expect("the process starts")
    }

    fn arrivals(&self, place: usize) -> std::path::PathBuf {
        self.scene.file(&format!("arrivals-{place}"))
    }

    /// Kills a process without warning and starts another one in its place.
    async fn replace(&mut self, place: usize) {
        let _ended_already = self.running[place].signal(Signal::SIGKILL);
        self.ended(place, LIMIT).await;
        self.running[place] = self.start(place);
    }

    /// Waits for a process's end, and counts how often it was refused. One that was not killed ended well.
    async fn ended(&mut self, place: usize, limit: Duration) {
        let status = self.running[place].wait(limit).await.expect("it ends");
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        assert!(killed || status.success(), "process {place}: {status}");
        self.busy += self.running[place].lines().iter().filter(|line| *line == "busy").count();
    }
}

async fn count(scene: &OnFile, sql: &'static str) -> usize {
    let count: i64 = sqlx::query_scalar(sql).fetch_one(scene.store.pool()).await.expect("a number");
    usize::try_from(count).expect("a count")
}

async fn set(scene: &OnFile, sql: &'static str) -> HashSet<String> {
    sqlx::query_scalar(sql).fetch_all(scene.store.pool()).await.expect("ids").into_iter().collect()
}

/// Complete lines only: a process that is killed may leave half of one.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| Some(line.strip_suffix('\n')?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_no_message_is_lost_when_writers_and_relays_on_one_file_are_killed() {
    let scene = OnFile::new().await;
    sqlx::query("create table orders (id text primary key)").execute(scene.store.pool()).await.expect("a table");
    let messages = 20_000 * scale();
    let limit = LIMIT * u32::try_from(scale()).expect("a small number");
    let mut processes = Processes { scene: &scene, messages, running: Vec::new(), busy: 0 };
    processes.running = (0..WRITERS + RELAYS).map(|place| processes.start(place)).collect();
    let (begun, mut kills, mut relay_kills) = (Instant::now(), 0, 0);
    while count(&scene, "select count(*) from orders").await < messages && begun.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(200 + dice(600) as u64)).await;
        let place = dice(WRITERS + RELAYS);
        processes.replace(place).await;
        kills += 1;
        relay_kills += usize::from(place >= WRITERS);
    }
    if relay_kills == 0 {
        processes.replace(WRITERS).await;
        (kills, relay_kills) = (kills + 1, 1);
    }
    for writer in 0..WRITERS {
        processes.ended(writer, limit).await;
    }
    let written = begun.elapsed();
    let open = "select count(*) from outbox_messages where status <> 'delivered'";
    within(limit, "all messages are delivered", || async { count(&scene, open).await == 0 }).await.expect("in time");
    println!(
        "{kills} kills, {relay_kills} of relays; written after {written:?}, delivered after {:?}",
        begun.elapsed()
    );
    let busy = processes.busy;
    println!("{busy} times a writer could not have the write lock");
    assert!(busy <= WRITERS, "writers starve: {busy} times one waited for longer than its busy time-out");
    let arrived: Vec<String> =
        (WRITERS..WRITERS + RELAYS).flat_map(|place| lines(&processes.arrivals(place))).collect();
    drop(processes);

    let integrity: String =
        sqlx::query_scalar("pragma integrity_check").fetch_one(scene.store.pool()).await.expect("a word");
    assert_eq!(integrity, "ok");
    let orders = set(&scene, "select id from orders").await;
    assert!(orders.len() >= messages, "{} orders", orders.len());
    assert_eq!(set(&scene, "select id from outbox_messages").await, orders, "an order and its message go together");
    let mut copies: HashMap<String, usize> = HashMap::new();
    for id in arrived {
        *copies.entry(id).or_default() += 1;
    }
    assert_eq!(copies.keys().cloned().collect::<HashSet<_>>(), orders, "what was committed arrived, and nothing else");
    let duplicates = copies.values().sum::<usize>() - copies.len();
    println!("{} messages, {duplicates} duplicates", copies.len());
    assert!(duplicates <= relay_kills * IN_HAND, "{duplicates} duplicates after {relay_kills} kills of relays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_commit_wakes_a_relay_in_another_process_long_before_it_polls() {
    let scene = OnFile::new().await;
    let file = scene.file("outbox.db").display().to_string();
    let arrivals = scene.file("arrivals");
    // An hour, so that only the bell can have been it.
    let rarely = [("POLL_SECONDS", "3600")];
    let relay = Worker::spawn(PROGRAM, &["relay", &file, &arrivals.display().to_string()], &rarely).expect("it starts");
    relay.wait_for_line(|line| line == "ready", LIMIT).await.expect("it is ready");
    for round in 1..=5 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        put(&scene.store, message()).await;
        let committed = Instant::now();
        within(LIMIT, "the message arrives", || async { lines(&arrivals).len() == round }).await.expect("in time");
        println!("another process: {:?}", committed.elapsed());
    }
}

/// The switch to WAL mode is refused at once while somebody else reads the new file.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_file_can_be_opened_and_migrated_by_many_at_once() {
    for round in 0..40 {
        let directory = tempfile::TempDir::new().expect("a directory");
        let file = directory.path().join("outbox.db");
        let open = |_| {
            let file = file.clone();
            tokio::spawn(async move { postrider::SqliteStore::open(file).await?.migrate().await })
        };
        let opening: Vec<_> = (0..6).map(open).collect();
        for store in opening {
            let migrated = store.await.expect("it does not panic");
            migrated.unwrap_or_else(|error| panic!("round {round}: {error}: {:?}", std::error::Error::source(&error)));
        }
    }
}
