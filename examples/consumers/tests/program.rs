//! The program itself, as two processes of one consumer that share a real inbox: each event that the relay delivers several
//! times has one effect, also when one of the processes is killed.

mod support;

use std::collections::HashMap;

use support::{Broker, PATIENCE, Redis, STREAM, Scene, name, stuttering};
use tempfile::TempDir;
use testkit::{Postgres, Signal, Worker, eventually};
use uuid::Uuid;

const EVENTS: usize = 200;

/// Starts one more process.
fn process(broker: &Redis, inbox: &str) -> Worker {
    let url = broker.server.url();
    let words =
        ["redis", "--url", &url, "--stream", STREAM, "--name", name().as_str(), "--at-once", "4"].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Worker::spawn(env!("CARGO_BIN_EXE_consumers"), &words, &[("INBOX", inbox)]).expect("the program starts")
}

/// How often each event was handled, by the lines of all processes.
fn effects(processes: &[Worker]) -> HashMap<Uuid, usize> {
    let mut effects = HashMap::new();
    for line in processes.iter().flat_map(Worker::lines) {
        let event = line.split(' ').next().and_then(|word| word.parse().ok()).expect("a line begins with an event id");
        *effects.entry(event).or_default() += 1;
    }
    effects
}

async fn each_has_one_effect(inbox: &str) {
    let scene = Scene::<Redis>::start().await;
    let events = scene.outbox.enqueue(EVENTS).await;
    let _relay = scene.outbox.relay(stuttering(scene.broker.sink()));
    let mut processes = vec![process(&scene.broker, inbox), process(&scene.broker, inbox)];
    eventually(PATIENCE, || async { effects(&processes).len() > EVENTS / 10 }).await;
    // One dies in the middle of its work; a third takes its place.
    processes[0].signal(Signal::SIGKILL).expect("it runs");
    processes.push(process(&scene.broker, inbox));
    eventually(PATIENCE, || async { effects(&processes).len() == EVENTS }).await;
    scene.settled().await;
    let effects = effects(&processes);
    assert!(events.iter().all(|event| effects.contains_key(event)), "an event was lost");
    // The killed process may have printed what it could not commit any more: at most as many as it handles at once.
    let again: usize = effects.values().map(|count| count - 1).sum();
    assert!(again <= 4, "{again} effects happened twice");
    for alive in &mut processes[1..] {
        alive.signal(Signal::SIGTERM).expect("it runs");
        assert!(alive.wait(PATIENCE).await.expect("it ends").success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_r63_events_have_their_effect_with_an_inbox_on_redis() {
    let server = testkit::brokers::redis::Redis::start().await.expect("Redis");
    each_has_one_effect(&server.url()).await;
    let keys = server.command(&["dbsize"]).await.expect("it answers");
    assert_eq!(keys.trim(), EVENTS.to_string(), "an event is not remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_r63_events_have_their_effect_with_an_inbox_on_postgresql() {
    let database = Postgres::shared().await.expect("PostgreSQL").create_database().await.expect("a database");
    each_has_one_effect(&database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_r63_events_have_their_effect_with_an_inbox_on_sqlite() {
    let directory = TempDir::new().expect("a directory");
    each_has_one_effect(&format!("sqlite:{}", directory.path().join("inbox.db").display())).await;
}

#[tokio::test]
async fn an_inbox_that_does_not_exist_is_refused() {
    let mut process = Worker::spawn(
        env!("CARGO_BIN_EXE_consumers"),
        &["redis", "--stream", "orders", "--inbox", "etcd://canary-host"],
        &[],
    )
    .expect("the program starts");
    assert!(!process.wait(PATIENCE).await.expect("it ends").success());
}
