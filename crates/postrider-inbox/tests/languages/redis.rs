//! One Redis, three languages.

use std::time::Duration;

use postrider_inbox::{RedisGuard, RedisInbox};
use serde_json::json;
use testkit::brokers::redis::Redis;
use testkit::eventually;
use uuid::Uuid;

use crate::party::{Acts, CONSUMER, Foreign, Party, Rust};

const SOON: Duration = Duration::from_secs(120);

/// What handlers do with Redis is elsewhere.
impl Acts for RedisGuard {
    async fn act(&mut self, _: Uuid) {}
}

struct Scene {
    redis: Redis,
    rust: Rust<RedisInbox>,
    python: Foreign,
    typescript: Foreign,
}

impl Scene {
    async fn new() -> Self {
        let redis = Redis::start().await.expect("a Redis");
        let url = redis.url();
        let rust = Rust::new(RedisInbox::builder(url.clone()).build().expect("good settings"));
        let (python, typescript) = tokio::join!(Foreign::python("redis", &url), Foreign::typescript("redis", &url));
        Self { redis, rust, python, typescript }
    }

    /// What a key says.
    async fn value(&self, event: Uuid) -> String {
        self.redis.command(&["get", &key(event)]).await.expect("it answers").trim().to_owned()
    }
}

fn key(event: Uuid) -> String {
    format!("pf:evt:processed:{CONSUMER}:{event}")
}

/// Runs a test with every two languages in both directions.
macro_rules! pairs {
    ($scene:expr, $test:ident) => {{
        let mut scene = $scene;
        let Scene { redis, rust, python, typescript } = &mut scene;
        $test(redis, rust, python).await;
        $test(redis, python, rust).await;
        $test(redis, rust, typescript).await;
        $test(redis, typescript, rust).await;
        $test(redis, python, typescript).await;
        $test(redis, typescript, python).await;
    }};
}

async fn processed(_: &Redis, one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    assert_eq!(one.succeed(event).await, "ran", "{}", one.name());
    assert_eq!(other.begin(event, None).await, "processed", "{} after {}", other.name(), one.name());
    assert_eq!(other.mark(event).await, "true", "{} after {}", other.name(), one.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_language_processed_is_a_duplicate_for_the_others() {
    pairs!(Scene::new().await, processed);
}

async fn held(_: &Redis, one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    assert_eq!(other.begin(event, None).await, "in progress", "{} beside {}", other.name(), one.name());
    assert_eq!(other.mark(event).await, "in progress", "{} beside {}", other.name(), one.name());
    one.fail(event).await;
    assert_eq!(other.begin(event, None).await, "first", "{} after {} failed", other.name(), one.name());
    assert_eq!(one.begin(event, None).await, "in progress", "{} beside {}", one.name(), other.name());
    assert_eq!(other.succeed(event).await, "ran", "{}", other.name());
    assert_eq!(one.begin(event, None).await, "processed", "{} after {}", one.name(), other.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_what_one_language_handles_is_in_progress_for_the_others() {
    pairs!(Scene::new().await, held);
}

async fn lost(redis: &Redis, one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, None).await, "first", "{}", one.name());
    redis.command(&["del", &key(event)]).await.expect("the claim is forgotten");
    assert_eq!(other.begin(event, None).await, "first", "{}", other.name());
    assert_eq!(one.succeed(event).await, "lost", "{} confirmed what {} holds", one.name(), other.name());
    assert_eq!(other.succeed(event).await, "ran", "{}", other.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_token_of_one_language_cannot_confirm_what_another_holds() {
    pairs!(Scene::new().await, lost);
}

async fn late(_: &Redis, one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.begin(event, Some("1.3")).await, "first", "{}", one.name());
    assert_eq!(other.begin(event, Some("1.2")).await, "stale", "{} beside {}", other.name(), one.name());
    one.fail(event).await;
    for older in ["1.2", "0.20"] {
        assert_eq!(other.begin(event, Some(older)).await, "stale", "{} after {}", other.name(), one.name());
    }
    assert_eq!(other.begin(event, Some("1.10")).await, "first", "{}", other.name());
    other.fail(event).await;
    assert_eq!(one.begin(event, Some("1.9")).await, "stale", "{} after {}", one.name(), other.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_attempt_is_late_whichever_language_saw_the_newer() {
    pairs!(Scene::new().await, late);
}

async fn marked(_: &Redis, one: &mut impl Party, other: &mut impl Party) {
    let event = Uuid::now_v7();
    assert_eq!(one.mark(event).await, "false", "{}", one.name());
    assert_eq!(other.mark(event).await, "true", "{} after {}", other.name(), one.name());
    assert_eq!(other.begin(event, None).await, "processed", "{} after {}", other.name(), one.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_language_marked_is_a_duplicate_for_the_others() {
    pairs!(Scene::new().await, marked);
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_stale_release_or_extension_changes_nothing_of_what_rust_holds() {
    let mut scene = Scene::new().await;
    for number in 0..2 {
        let event = Uuid::now_v7();
        let foreign = if number == 0 { &mut scene.python } else { &mut scene.typescript };
        assert_eq!(foreign.claim(event).await, "first");
        assert_eq!(foreign.settle(event, "extend").await, true);
        scene.redis.command(&["del", &key(event)]).await.expect("the claim is forgotten");
        assert_eq!(scene.rust.begin(event, None).await, "first");
        let before = scene.redis.command(&["get", &key(event)]).await.expect("it answers");
        assert!(before.starts_with("claimed:"), "{before}");
        assert_eq!(foreign.settle(event, "extend").await, false);
        assert_eq!(foreign.settle(event, "release").await, false);
        assert_eq!(foreign.settle(event, "commit").await, "ClaimLost");
        assert_eq!(scene.value(event).await, before.trim());
        assert_eq!(scene.rust.succeed(event).await, "ran");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_longer_than_its_claim_keeps_it() {
    let mut scene = Scene::new().await;
    for number in 0..2 {
        let event = Uuid::now_v7();
        let foreign = if number == 0 { &mut scene.python } else { &mut scene.typescript };
        let run = json!({ "do": "run", "consumer": CONSUMER, "event": event, "claim_ms": 3_000 });
        assert_eq!(foreign.ask(run).await, "first");
        // The time that is left is seen to grow again, four times by a third: the claim has outlived itself.
        let (redis, growths, least) = (&scene.redis, std::cell::Cell::new(0), std::cell::Cell::new(i64::MAX));
        eventually(SOON, || async {
            let left = redis.command(&["pttl", &key(event)]).await.expect("it answers");
            let left: i64 = left.trim().parse().expect("a number");
            assert!(left > 0, "the claim ran out");
            if left > least.get() {
                growths.set(growths.get() + 1);
            }
            least.set(left);
            growths.get() >= 4
        })
        .await;
        assert_eq!(scene.rust.begin(event, None).await, "in progress");
        assert_eq!(foreign.succeed(event).await, "ran");
        assert_eq!(scene.rust.begin(event, None).await, "processed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_after_redis_has_forgotten_the_claim_counts() {
    let mut scene = Scene::new().await;
    for number in 0..2 {
        let event = Uuid::now_v7();
        let foreign = if number == 0 { &mut scene.python } else { &mut scene.typescript };
        assert_eq!(foreign.begin(event, None).await, "first");
        assert_eq!(scene.redis.command(&["del", &key(event)]).await.expect("it answers").trim(), "1");
        assert_eq!(foreign.succeed(event).await, "ran");
        assert_eq!(scene.rust.begin(event, None).await, "processed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_any_program_has_set_counts_as_processed() {
    let mut scene = Scene::new().await;
    for value in ["1", "processed", "processed:0.3", ""] {
        let event = Uuid::now_v7();
        scene.redis.command(&["set", &key(event), value, "nx", "ex", "60"]).await.expect("it is set");
        assert_eq!(scene.rust.begin(event, Some("0.1")).await, "processed", "{value:?}");
        assert_eq!(scene.python.begin(event, Some("0.1")).await, "processed", "{value:?}");
        assert_eq!(scene.typescript.begin(event, Some("0.1")).await, "processed", "{value:?}");
    }
}

/// Without an exception the consumer would be told what nobody knows.
async fn is_refused(foreign: &mut Foreign, event: Uuid) {
    let told = foreign.begin(event, None).await;
    assert!(told.contains("Error"), "{} says {told:?} without a Redis", foreign.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_without_redis_nothing_is_handled_and_nothing_acknowledged_until_it_is_back() {
    let mut scene = Scene::new().await;
    for number in 0..2 {
        let foreign = if number == 0 { &mut scene.python } else { &mut scene.typescript };
        let (before, during) = (Uuid::now_v7(), Uuid::now_v7());
        assert_eq!(foreign.begin(before, None).await, "first", "{}", foreign.name());
        scene.redis.kill().await.expect("it is killed");
        // The handler succeeds, but that cannot be remembered: the broker is to bring it again.
        let told = foreign.succeed(before).await;
        assert!(told.contains("Error"), "{} says {told:?} without a Redis", foreign.name());
        is_refused(foreign, during).await;
        scene.redis.restart().await.expect("it is back, and empty");
        for event in [before, during] {
            let foreign = tokio::sync::Mutex::new(&mut *foreign);
            eventually(SOON, || async { foreign.lock().await.begin(event, None).await == "first" }).await;
            assert_eq!(foreign.into_inner().succeed(event).await, "ran");
        }
    }
}
