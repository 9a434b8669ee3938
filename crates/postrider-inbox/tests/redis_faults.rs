//! R66 and R67: whatever happens to Redis, to the connection or to the process, an event is repeated and never lost.
#![cfg(feature = "redis")]

mod redis_support;

use std::time::Duration;

use futures::FutureExt;
use postrider_inbox::redis::{Unreachable, Warning};
use postrider_inbox::{Entry, Guard, Inbox, InboxError, RedisInbox};
use redis_support::*;
use testkit::brokers::redis::Redis;
use testkit::{Mode, eventually};
use uuid::Uuid;

/// A server, and an inbox that reaches it through a proxy.
struct Scene {
    server: Redis,
    proxy: testkit::Proxy,
    /// Behind the proxy, with short claims and time limits.
    far: RedisInbox,
    /// Without the proxy.
    near: RedisInbox,
}

impl Scene {
    async fn start() -> Self {
        let server = Redis::start().await.expect("Redis");
        let proxy = proxy(&server).await;
        let far = settings(proxy.port()).claim(SHORT).connect_timeout(Duration::from_secs(2));
        let far = far.response_timeout(Duration::from_secs(1)).build().expect("good settings");
        let near = inbox(&server);
        Self { server, proxy, far, near }
    }
}

async fn mark(inbox: &RedisInbox, delivery: &postrider_inbox::Delivery) -> Result<bool, InboxError> {
    inbox.check_and_mark_processed(&delivery.consumer, delivery.event, KEEP).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_guard_whose_claim_another_took_commits_and_releases_nothing() {
    let scene = Scene::start().await;
    let deliveries = [delivery(), delivery().with_attempt(attempt(2)), delivery()];
    let mut late = Vec::new();
    for delivery in &deliveries {
        late.push(first(&scene.far, delivery).await);
    }
    scene.proxy.set(Mode::Blackhole);
    let mut taken = Vec::new();
    for delivery in &deliveries {
        taken.push((let_in(&scene.near, delivery).await, value(&scene.server, delivery).await));
    }
    for guard in &late {
        tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is told");
        assert!(guard.is_lost());
    }
    scene.proxy.set(Mode::Pass);

    let [commits, releases, drops] = <[_; 3]>::try_from(late).expect("three");
    let refused = commits.commit().await.expect_err("another has it");
    assert!(matches!(refused, InboxError::Lost { event } if event == deliveries[0].event), "{refused:?}");
    let refused = releases.release().await.expect_err("another has it");
    assert!(matches!(refused, InboxError::Lost { event } if event == deliveries[1].event), "{refused:?}");
    let before = calls(&scene.server, "evalsha").await;
    drop(drops);
    eventually(PATIENCE, || async { calls(&scene.server, "evalsha").await > before }).await;
    for ((guard, held), delivery) in taken.into_iter().zip(&deliveries) {
        assert!(held.starts_with("claimed:"), "{held}");
        assert_eq!(value(&scene.server, delivery).await, held, "nothing was overwritten or deleted");
        guard.commit().await.expect("it still has it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_late_commit_does_not_overwrite_what_another_processed() {
    let scene = Scene::start().await;
    let delivery = delivery();
    let late = first(&scene.far, &delivery).await;
    scene.proxy.set(Mode::Blackhole);
    let_in(&scene.near, &delivery).await.commit().await.expect("it commits");
    let processed = value(&scene.server, &delivery).await;
    scene.proxy.set(Mode::Pass);
    assert!(matches!(late.commit().await, Err(InboxError::Lost { .. })));
    assert_eq!(value(&scene.server, &delivery).await, processed);
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_commit_whose_claim_is_gone_and_nobody_s_counts() {
    let scene = Scene::start().await;
    for numbered in [delivery(), delivery().with_attempt(attempt(1))] {
        let guard = first(&scene.near, &numbered).await;
        command(&scene.server, &["del", &key(&numbered)]).await;
        guard.commit().await.expect("the effect has happened");
        assert!(begin(&scene.near, &numbered).await.is_already_processed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_lasts_for_as_long_as_its_handler_runs() {
    let scene = Scene::start().await;
    let delivery = delivery();
    let inbox = settings(scene.server.port()).claim(KEPT).build().expect("good settings");
    let guard = first(&inbox, &delivery).await;
    // Four thirds are more than a claim.
    eventually(PATIENCE, || async {
        assert!(matches!(begin(&scene.near, &delivery).await, Entry::InProgress(left) if left <= KEPT));
        calls(&scene.server, "pexpire").await >= 4
    })
    .await;
    assert!(!guard.is_lost());
    guard.commit().await.expect("it still has it");
    assert!(begin(&scene.near, &delivery).await.is_already_processed());
}

/// An extension of what is settled would be refused, and look like a claim that was lost.
#[tokio::test]
async fn a_settled_guard_is_not_extended_any_more() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let scene = Scene::start().await;
    let inbox = settings(scene.server.port()).claim(KEPT).build().expect("good settings");
    first(&inbox, &delivery()).await.commit().await.expect("it commits");
    first(&inbox, &delivery()).await.release().await.expect("it is released");
    drop(first(&inbox, &delivery()).await);
    // Those before would have been extended before this one is for the second time.
    let _guard = first(&inbox, &delivery()).await;
    let extended = calls(&scene.server, "pexpire").await;
    eventually(PATIENCE, || async { calls(&scene.server, "pexpire").await >= extended + 2 }).await;
    let counted = recorder.snapshotter().snapshot().into_vec();
    assert!(counted.iter().all(|(key, ..)| key.key().name() != "postrider_inbox_lost_total"), "{counted:?}");
}

/// A runtime that is not driven is a process that does not run.
#[test]
fn a_claim_runs_out_while_its_process_stalls_and_the_commit_is_refused() {
    let (here, stalled) = (runtime(), runtime());
    let scene = here.block_on(Scene::start());
    let (taken, alone) = (delivery(), delivery());
    let far = settings(scene.server.port()).claim(SHORT).build().expect("good settings");
    let guards = stalled.block_on(async { [first(&far, &taken).await, first(&far, &alone).await] });
    let other = here.block_on(async {
        eventually(PATIENCE, || async { value(&scene.server, &alone).await.is_empty() }).await;
        let_in(&scene.near, &taken).await
    });
    let [late, lucky] = guards;
    stalled.block_on(async {
        assert!(matches!(late.commit().await, Err(InboxError::Lost { .. })));
        lucky.commit().await.expect("nobody has noticed");
    });
    here.block_on(async {
        other.commit().await.expect("it still has it");
        assert!(begin(&scene.near, &alone).await.is_already_processed());
    });
}

#[test]
fn a_guard_that_is_dropped_without_a_runtime_lets_its_claim_run_out() {
    let (here, gone) = (runtime(), runtime());
    let scene = here.block_on(Scene::start());
    let delivery = delivery();
    let far = settings(scene.server.port()).claim(SHORT).build().expect("good settings");
    let guard = gone.block_on(first(&far, &delivery));
    drop(gone);
    drop(guard);
    here.block_on(async { let_in(&scene.near, &delivery).await.commit().await }).expect("it commits");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_outlives_a_connection_that_breaks() {
    let scene = Scene::start().await;
    let delivery = delivery();
    let inbox = settings(scene.proxy.port()).claim(KEPT).build().expect("good settings");
    let guard = first(&inbox, &delivery).await;
    scene.proxy.set(Mode::Reset);
    eventually(PATIENCE, || async { scene.proxy.connections() == 0 }).await;
    scene.proxy.set(Mode::Pass);
    eventually(PATIENCE, || async { calls(&scene.server, "pexpire").await >= 2 }).await;
    assert!(!guard.is_lost());
    guard.commit().await.expect("it still has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_fails_is_tried_again() {
    let scene = Scene::start().await;
    let soon = Duration::from_millis(300);
    let builder = settings(scene.proxy.port()).claim(Duration::from_secs(24));
    let inbox = builder.response_timeout(soon).connect_timeout(soon).build().expect("good settings");
    let guard = let_in(&inbox, &delivery()).await;
    scene.proxy.set(Mode::Blackhole);
    // One extension has had no answer, and the next wants another connection.
    eventually(PATIENCE, || async { scene.proxy.connections() >= 2 }).await;
    scene.proxy.set(Mode::Pass);
    eventually(PATIENCE, || async { calls(&scene.server, "pexpire").await >= 1 }).await;
    assert!(!guard.is_lost());
    guard.commit().await.expect("it still has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_cannot_be_extended_is_lost_by_the_guard_s_own_clock() {
    let scene = Scene::start().await;
    let guard = first(&scene.far, &delivery()).await;
    scene.server.kill().await.expect("killed");
    tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_begin_is_asked_for_again() {
    let scene = Scene::start().await;
    let delivery = delivery();
    scene.proxy.cut_reply_containing(b"first");
    let guard = first(&scene.far, &delivery).await;
    assert_eq!(scene.proxy.cuts(), 1);
    guard.commit().await.expect("the claim is its own");
    assert!(begin(&scene.near, &delivery).await.is_already_processed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_begin_was_never_answered_is_let_in_later() {
    let scene = Scene::start().await;
    let delivery = delivery();
    scene.proxy.cut_replies_containing(b"first", 2);
    let inbox = settings(scene.proxy.port()).claim(Duration::from_secs(12)).build().expect("good settings");
    let unknown = inbox.begin(&delivery).await.expect_err("no answer");
    assert!(matches!(unknown, InboxError::Unavailable(_)), "{unknown:?}");
    assert_eq!(scene.proxy.cuts(), 2);
    assert!(value(&scene.server, &delivery).await.starts_with("claimed:"), "nobody knows of this claim");
    let_in(&scene.near, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_commit_is_asked_for_again() {
    let scene = Scene::start().await;
    for delivery in [delivery(), delivery().with_attempt(attempt(1))] {
        let guard = first(&scene.far, &delivery).await;
        let cuts = scene.proxy.cuts();
        scene.proxy.cut_replies_containing(b"processed", 3);
        guard.commit().await.expect("its own mark is no reason to refuse");
        assert_eq!(scene.proxy.cuts(), cuts + 3);
        assert!(begin(&scene.near, &delivery).await.is_already_processed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_mark_is_asked_for_again() {
    let scene = Scene::start().await;
    let delivery = delivery();
    scene.proxy.cut_reply_containing(b"first");
    assert!(!mark(&scene.far, &delivery).await.expect("it answers"), "its own mark is no other's");
    assert_eq!(scene.proxy.cuts(), 1);
    assert!(mark(&scene.far, &delivery).await.expect("it answers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_mark_was_never_answered_does_not_count_as_processed() {
    let scene = Scene::start().await;
    let delivery = delivery();
    scene.proxy.cut_replies_containing(b"first", 2);
    let unknown = mark(&scene.far, &delivery).await.expect_err("no answer");
    assert!(matches!(unknown, InboxError::Unavailable(_)), "{unknown:?}");
    assert_eq!(scene.proxy.cuts(), 2);
    eventually(PATIENCE, || async { !mark(&scene.near, &delivery).await.expect("it answers") }).await;
    // What the next delivery has marked is not ours to undo.
    let held = value(&scene.server, &delivery).await;
    assert!(mark(&scene.far, &delivery).await.expect("it answers"));
    assert_eq!(value(&scene.server, &delivery).await, held);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_mark_was_answered_too_late_or_given_up_does_not_count_as_processed() {
    let scene = Scene::start().await;
    // It is connected, and the server knows the script.
    assert!(!mark(&scene.far, &delivery()).await.expect("it answers"));
    for is_given_up in [false, true] {
        let delivery = delivery();
        scene.proxy.set(Mode::HalfOpen);
        let marking = mark(&scene.far, &delivery);
        let is_marked = eventually(PATIENCE, || async { !value(&scene.server, &delivery).await.is_empty() });
        match is_given_up {
            true => tokio::select! { biased; _ = marking => panic!("nothing comes back"), () = is_marked => {} },
            false => assert!(matches!(tokio::join!(marking, is_marked).0, Err(InboxError::Unavailable(_)))),
        }
        scene.proxy.set(Mode::Pass);
        eventually(PATIENCE, || async { !mark(&scene.near, &delivery).await.expect("it answers") }).await;
    }
}

/// The handler has run, so the mark is true.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_without_an_answer_stays_if_the_event_is_handled_nevertheless() {
    let scene = Scene::start().await;
    let open = settings(scene.proxy.port()).when_unreachable(Unreachable::Proceed).build().expect("good");
    let (handled, refused) = (delivery(), delivery());
    scene.proxy.cut_replies_containing(b"first", 4);
    assert!(!mark(&open, &handled).await.expect("it is handled"));
    // Another that is undone shows that enough time has passed.
    mark(&scene.far, &refused).await.expect_err("no answer");
    eventually(PATIENCE, || async { value(&scene.server, &refused).await.is_empty() }).await;
    assert!(mark(&scene.near, &handled).await.expect("it answers"));
}

/// An extension finds the mark of its own commit, whose answer was lost.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_no_lost_claim() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let scene = Scene::start().await;
    for delivery in [delivery(), delivery().with_attempt(attempt(1))] {
        let inbox = settings(scene.proxy.port()).claim(KEPT).build().expect("good settings");
        let guard = first(&inbox, &delivery).await;
        let lost = guard.lost();
        // With the pauses between the tries this takes longer than a third of the claim.
        scene.proxy.cut_replies_containing(b"processed", 20);
        guard.commit().await.expect("its own mark is no reason to refuse");
        assert!(lost.now_or_never().is_none(), "nobody else has it");
    }
    let counted = recorder.snapshotter().snapshot().into_vec();
    assert!(counted.iter().all(|(key, ..)| key.key().name() != "postrider_inbox_lost_total"), "{counted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_never_answered_fails_in_time_and_nothing_is_lost() {
    let scene = Scene::start().await;
    let builder = settings(scene.proxy.port()).claim(SHORT).response_timeout(Duration::from_millis(100));
    let hasty = builder.commit_timeout(Duration::from_millis(300)).build().expect("good settings");
    for mode in [Mode::Blackhole, Mode::Reset, Mode::HalfOpen] {
        scene.proxy.set(Mode::Pass);
        let delivery = delivery();
        let guard = let_in(&hasty, &delivery).await;
        scene.proxy.set(mode);
        let failed = tokio::time::timeout(PATIENCE, guard.commit()).await.expect("in time").expect_err("no answer");
        assert!(matches!(failed, InboxError::Unavailable(_)), "{mode:?}: {failed:?}");
        // Whether it counts or not, the next delivery comes to an end.
        let end = async {
            loop {
                match begin(&scene.near, &delivery).await {
                    Entry::First(guard) => break guard.commit().await.expect("it commits"),
                    Entry::AlreadyProcessed => break,
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("an end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_restart_without_persistence_repeats_and_does_not_lose() {
    let scene = Scene::start().await;
    let (processed, handled) = (delivery(), delivery());
    // Longer than a restart takes: a claim that cannot be extended before it runs out is lost.
    let inbox = settings(scene.server.port()).claim(Duration::from_secs(30)).build().expect("good settings");
    process(&inbox, &processed).await;
    let guard = first(&inbox, &handled).await;
    scene.server.restart().await.expect("it starts again");
    assert_eq!(value(&scene.server, &processed).await, "", "it has forgotten everything");
    // What runs is protected again as soon as its claim is extended.
    eventually(2 * PATIENCE, || async { value(&scene.server, &handled).await.starts_with("claimed:") }).await;
    assert!(matches!(begin(&scene.near, &handled).await, Entry::InProgress(_)));
    guard.commit().await.expect("nobody else has it");
    assert!(begin(&scene.near, &handled).await.is_already_processed());
    // What was processed is forgotten: a duplicate is handled again.
    let_in(&scene.near, &processed).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_restart_with_persistence_forgets_nothing() {
    let server = Redis::builder().durable().start().await.expect("Redis");
    let inbox = inbox(&server);
    let (processed, handled) = (delivery(), delivery());
    process(&inbox, &processed).await;
    let guard = first(&inbox, &handled).await;
    server.restart().await.expect("it starts again");
    let again = || async { inbox.begin(&processed).await.is_ok_and(|entry| entry.is_already_processed()) };
    eventually(PATIENCE, again).await;
    assert!(matches!(begin(&inbox, &handled).await, Entry::InProgress(_)));
    guard.commit().await.expect("it still has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_flush_repeats_and_does_not_lose() {
    let scene = Scene::start().await;
    let (processed, marked, handled) = (delivery(), delivery(), delivery());
    process(&scene.near, &processed).await;
    assert!(!mark(&scene.near, &marked).await.expect("it answers"));
    let guard = first(&scene.near, &handled).await;
    command(&scene.server, &["flushall"]).await;
    process(&scene.near, &processed).await;
    assert!(!mark(&scene.near, &marked).await.expect("it answers"));
    // Another takes what is being handled, and is the one that commits.
    let other = first(&scene.near, &handled).await;
    assert!(matches!(guard.commit().await, Err(InboxError::Lost { .. })));
    other.commit().await.expect("it has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_full_memory_without_eviction_refuses_and_processes_nothing() {
    let scene = Scene::start().await;
    let (processed, fresh, handled) = (delivery(), delivery(), delivery());
    process(&scene.near, &processed).await;
    let guard = first(&scene.near, &handled).await;
    let released = first(&scene.near, &delivery()).await;
    command(&scene.server, &["config", "set", "maxmemory", "1"]).await;
    for refused in [scene.near.begin(&fresh).await.map(drop), mark(&scene.near, &fresh).await.map(drop)] {
        let refused = refused.expect_err("there is no room");
        assert!(matches!(&refused, InboxError::Unavailable(why) if why.to_string().contains("OOM")), "{refused:?}");
    }
    assert!(begin(&scene.near, &processed).await.is_already_processed(), "what it knows, it knows");
    released.release().await.expect("it needs no room");
    let hasty = settings(scene.server.port()).commit_timeout(Duration::from_millis(200)).build().expect("good");
    let open = settings(scene.server.port()).when_unreachable(Unreachable::Proceed).build().expect("good");
    assert!(first(&open, &fresh).await.is_unguarded());
    let commit = tokio::spawn(guard.commit());
    // The commit is being tried when there is room again.
    let before = calls(&scene.server, "evalsha").await;
    eventually(PATIENCE, || async { calls(&scene.server, "evalsha").await > before + 1 }).await;
    assert!(value(&scene.server, &handled).await.starts_with("claimed:"), "it does not count yet");
    command(&scene.server, &["config", "set", "maxmemory", "0"]).await;
    commit.await.expect("no panic").expect("there is room");
    let short = first(&hasty, &fresh).await;
    command(&scene.server, &["config", "set", "maxmemory", "1"]).await;
    assert!(matches!(short.commit().await, Err(InboxError::Unavailable(_))));
    assert!(value(&scene.server, &fresh).await.starts_with("claimed:"), "it does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_an_eviction_repeats_and_does_not_lose() {
    for policy in ["volatile-lru", "allkeys-random"] {
        let scene = Scene::start().await;
        let used = command(&scene.server, &["info", "memory"]).await;
        let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok());
        let limit = (used.expect("it says so") + 2_000_000).to_string();
        command(&scene.server, &["config", "set", "maxmemory-policy", policy, "maxmemory", &limit]).await;
        let processed: Vec<_> = (0..300).map(|_| delivery()).collect();
        for delivery in &processed {
            process(&scene.near, delivery).await;
        }
        // Others fill the memory until some of these are gone.
        let fill = "for i = 1, 20 do redis.call('set', ARGV[1] .. i, string.rep('x', 10000), 'ex', 600) end";
        let count = "return #redis.call('keys', 'pf:evt:processed:*')";
        eventually(PATIENCE, || async {
            command(&scene.server, &["eval", fill, "0", &Uuid::now_v7().to_string()]).await;
            command(&scene.server, &["eval", count, "0"]).await.parse::<usize>().expect("a number") < 300
        })
        .await;
        let mut again = 0;
        for delivery in &processed {
            match begin(&scene.near, delivery).await {
                Entry::First(guard) => {
                    again += 1;
                    guard.commit().await.expect("it commits");
                }
                Entry::AlreadyProcessed => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(again > 0, "some were forgotten");
        assert_eq!(
            scene.near.examine().await.expect("it answers")[0],
            Warning::Eviction { policy: policy.into(), is_limited: true }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_server_that_takes_no_writes_refuses() {
    let scene = Scene::start().await;
    let delivery = delivery();
    command(&scene.server, &["replicaof", "127.0.0.1", "1"]).await;
    let refused = scene.near.begin(&delivery).await.expect_err("it is a replica");
    assert!(matches!(refused, InboxError::Unavailable(_)), "{refused:?}");
    command(&scene.server, &["replicaof", "no", "one"]).await;
    process(&scene.near, &delivery).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_failover_to_a_replica_that_lacks_something_repeats_and_does_not_lose() {
    let (old, new) = (Redis::start().await.expect("Redis"), Redis::start().await.expect("Redis"));
    let (before, after) = (delivery(), delivery());
    process(&inbox(&old), &before).await;
    command(&new, &["replicaof", "127.0.0.1", &old.port().to_string()]).await;
    eventually(PATIENCE, || async { !value(&new, &before).await.is_empty() }).await;
    command(&new, &["replicaof", "no", "one"]).await;
    process(&inbox(&old), &after).await;
    let promoted = inbox(&new);
    assert!(begin(&promoted, &before).await.is_already_processed());
    process(&promoted, &after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_26_r67_without_redis_everything_is_refused_by_default() {
    let scene = Scene::start().await;
    let handled = delivery();
    let guard = first(&scene.near, &handled).await;
    scene.server.kill().await.expect("killed");
    for refused in [scene.near.begin(&delivery()).await.map(drop), mark(&scene.near, &delivery()).await.map(drop)] {
        let refused = refused.expect_err("there is no Redis");
        assert!(matches!(refused, InboxError::Unavailable(_)) && refused.is_transient(), "{refused:?}");
    }
    assert!(guard.release().await.is_err());
    let refused = settings(scene.server.port()).connect().await.expect_err("there is no Redis");
    assert!(matches!(refused, InboxError::Unavailable(_)), "{refused:?}");
}

#[tokio::test]
async fn r67_without_redis_everything_is_handled_if_the_option_says_so() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server = Redis::start().await.expect("Redis");
    let builder = settings(server.port()).response_timeout(PATIENCE).when_unreachable(Unreachable::Proceed);
    let inbox = builder.clone().build().expect("good settings");
    let (down, back, forgot) = (delivery(), delivery(), delivery());
    assert!(!first(&inbox, &forgot).await.is_unguarded());
    server.kill().await.expect("killed");
    builder.connect().await.expect("it connects later");
    let unguarded = first(&inbox, &down).await;
    assert!(unguarded.is_unguarded() && !unguarded.is_lost());
    unguarded.commit().await.expect("handled is handled");
    assert!(!mark(&inbox, &down).await.expect("it answers"));
    let unguarded = first(&inbox, &back).await;
    server.restart().await.expect("it starts again");
    unguarded.commit().await.expect("it commits");
    assert!(begin(&inbox, &back).await.is_already_processed(), "it is remembered if that is possible");
    let counted = recorder.snapshotter().snapshot().into_vec();
    let counted = counted.iter().find(|(key, ..)| key.key().name() == "postrider_inbox_unguarded_total");
    let (key, _, _, value) = counted.expect("it was counted");
    assert_eq!(key.key().labels().next().map(|label| label.value()), Some("mailer"));
    assert_eq!(*value, metrics_util::debugging::DebugValue::Counter(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_settings_that_make_redis_forget_are_said() {
    let bare = Redis::start().await.expect("Redis");
    assert_eq!(inbox(&bare).examine().await.expect("it answers"), [Warning::NoPersistence]);
    let durable = Redis::builder().durable().start().await.expect("Redis");
    assert_eq!(inbox(&durable).examine().await.expect("it answers"), []);
    command(&durable, &["config", "set", "appendfsync", "no", "maxmemory-policy", "volatile-ttl"]).await;
    let evicts = Warning::Eviction { policy: "volatile-ttl".into(), is_limited: false };
    assert_eq!(inbox(&durable).examine().await.expect("it answers"), [evicts, Warning::LateFsync]);
    let silent = Redis::builder().password("x").start().await.expect("Redis");
    command(&silent, &["acl", "setuser", "consumer", "on", ">y", "~*", "+@all", "-config"]).await;
    let user = settings(silent.port()).username("consumer").password("y").build().expect("good settings");
    assert_eq!(user.examine().await.expect("it answers"), [Warning::NotChecked]);
    let stranger = settings(silent.port()).build().expect("good settings");
    assert!(matches!(stranger.examine().await, Err(InboxError::Failed(_))));
}
