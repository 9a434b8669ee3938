//! The inbox on Redis keeps every promise of the inbox seam, and those of its keys.
#![cfg(feature = "redis")]

mod redis_support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use postrider_inbox::redis::Unreachable;
use postrider_inbox::{Delivery, Entry, Guard, Inbox, InboxError, RedisGuard, RedisInbox, RunError, run_once};
use redis_support::*;
use testkit::brokers::redis::Redis;
use testkit::inbox::Harness;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use uuid::Uuid;

/// One server for all tests of the process; each has a prefix of its own.
static SERVER: OnceCell<Redis> = OnceCell::const_new();

async fn server() -> &'static Redis {
    SERVER.get_or_init(|| async { Redis::start().await.expect("Redis") }).await
}

struct OnRedis {
    prefix: String,
    port: u16,
    effects: Mutex<HashMap<Uuid, usize>>,
}

impl Harness for OnRedis {
    type Inbox = RedisInbox;
    const IS_EXACT: bool = false;

    /// [`r64_twenty_thousand_events_at_sixteen_consumers_have_one_effect_each`] delivers more.
    fn events() -> usize {
        testkit::inbox::scaled(1_000)
    }

    async fn start() -> Self {
        let prefix = format!("test:{}", Uuid::now_v7());
        Self { prefix, port: server().await.port(), effects: Mutex::default() }
    }

    async fn inbox(&self) -> RedisInbox {
        // It is about promises, not about speed: a busy machine may answer late.
        let builder = settings(self.port).response_timeout(PATIENCE).connect_timeout(PATIENCE);
        builder.prefix(&self.prefix).build().expect("good settings")
    }

    async fn effect(&self, _: &mut RedisGuard, event: Uuid) {
        *self.effects.lock().unwrap_or_else(PoisonError::into_inner).entry(event).or_default() += 1;
        tokio::task::yield_now().await;
    }

    async fn effects(&self) -> HashMap<Uuid, usize> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

testkit::inbox_conformance!(OnRedis);

/// The same as the suite's, with many events in hand at once, so that 320,000 deliveries take little time.
#[tokio::test(flavor = "multi_thread")]
async fn r64_twenty_thousand_events_at_sixteen_consumers_have_one_effect_each() {
    let harness = Arc::new(OnRedis::start().await);
    let events: Arc<Vec<Uuid>> = Arc::new((0..20_000).map(|_| Uuid::now_v7()).collect());
    let mut consumers = JoinSet::new();
    for _ in 0..16 {
        let (inbox, harness, events) = (harness.inbox().await, harness.clone(), events.clone());
        consumers.spawn(async move {
            let each = |event: Uuid| deliver(&inbox, &harness, event);
            futures::stream::iter(events.iter().copied()).for_each_concurrent(50, each).await;
        });
    }
    consumers.join_all().await;
    let effects = harness.effects().await;
    assert_eq!(effects.len(), events.len(), "effects were lost");
    assert_eq!(effects.values().filter(|count| **count != 1).count(), 0, "effects happened more than once");
}

/// Delivers an event until it counts as processed.
async fn deliver(inbox: &RedisInbox, harness: &OnRedis, event: Uuid) {
    let delivery = Delivery::new(mailer(), event);
    let handle = async |guard: &mut RedisGuard| {
        harness.effect(guard, event).await;
        Ok::<_, ()>(())
    };
    loop {
        match run_once(inbox, &delivery, handle).await {
            Ok(once) if once.may_ack() => return,
            Ok(_) => {}
            Err(RunError::Inbox(error)) if error.is_transient() => {}
            Err(error) => panic!("the inbox fails: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn ttl(server: &Redis, delivery: &Delivery) -> Duration {
    Duration::from_millis(command(server, &["pttl", &key(delivery)]).await.parse().expect("it has a time to live"))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_are_what_other_languages_expect() {
    let server = server().await;
    let inbox = inbox(server);
    let (plain, marked) = (delivery(), delivery());
    let numbered = delivery().with_attempt(attempt(3));

    let guard = first(&inbox, &plain).await;
    let token = value(server, &plain).await.strip_prefix("claimed:").expect("a claim").to_owned();
    assert!(token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "{token}");
    assert!(ttl(server, &plain).await <= LONG);
    guard.commit().await.expect("it commits");
    assert_eq!(value(server, &plain).await, format!("processed:{token}"));
    let kept = ttl(server, &plain).await;
    assert!(kept > postrider_inbox::DEFAULT_KEEP - PATIENCE && kept <= postrider_inbox::DEFAULT_KEEP, "{kept:?}");

    let guard = first(&inbox, &numbered).await;
    let claimed = value(server, &numbered).await;
    assert!(claimed.starts_with("claimed:") && claimed.ends_with(":0.3"), "{claimed}");
    guard.release().await.expect("it is released");
    assert_eq!(value(server, &numbered).await, "released:0.3");
    assert!(ttl(server, &numbered).await > LONG);
    process(&inbox, &numbered).await;
    let processed = value(server, &numbered).await;
    assert!(processed.starts_with("processed:") && processed.ends_with(":0.3"), "{processed}");

    assert!(!inbox.check_and_mark_processed(&marked.consumer, marked.event, KEEP).await.expect("it answers"));
    assert!(value(server, &marked).await.starts_with("processed:"));
    let kept = ttl(server, &marked).await;
    assert!(kept > KEEP - PATIENCE && kept <= KEEP, "{kept:?}");

    let released = delivery();
    first(&inbox, &released).await.release().await.expect("it is released");
    assert_eq!(value(server, &released).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_any_program_has_set_counts_as_processed() {
    let server = server().await;
    let inbox = inbox(server);
    for text in ["1", "processed", "processed:0.3", "2026-01-01T00:00:00Z", "", "claimed", "released"] {
        let delivery = delivery();
        command(server, &["set", &key(&delivery), text, "nx", "px", "600000"]).await;
        assert!(begin(&inbox, &delivery).await.is_already_processed(), "{text:?}");
        let marked = inbox.check_and_mark_processed(&delivery.consumer, delivery.event, KEEP).await;
        assert!(marked.expect("it answers"), "{text:?}");
        assert_eq!(value(server, &delivery).await, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_holds_something_else_is_neither_free_nor_processed() {
    let server = server().await;
    let inbox = inbox(server);
    let delivery = delivery();
    command(server, &["rpush", &key(&delivery), "x"]).await;
    let failed = inbox.begin(&delivery).await.expect_err("no string");
    assert!(matches!(failed, InboxError::Failed(_)), "{failed:?}");
    let failed = inbox.check_and_mark_processed(&delivery.consumer, delivery.event, KEEP).await.expect_err("no string");
    assert!(matches!(failed, InboxError::Failed(_)), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_for_how_long_at_most() {
    let server = server().await;
    let inbox = inbox(server);
    let delivery = delivery();
    let _guard = first(&inbox, &delivery).await;
    let Entry::InProgress(remaining) = begin(&inbox, &delivery).await else { panic!("somebody handles it") };
    assert!(remaining > LONG - PATIENCE && remaining <= LONG, "{remaining:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_program_that_would_never_run_out_does_so() {
    let server = server().await;
    let inbox = settings(server.port()).claim(SHORT).build().expect("good settings");
    let delivery = delivery();
    command(server, &["set", &key(&delivery), "claimed:x"]).await;
    let Entry::InProgress(remaining) = begin(&inbox, &delivery).await else { panic!("somebody handles it") };
    assert!(remaining <= SHORT, "{remaining:?}");
    let_in(&inbox, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_attempt_that_has_to_wait_is_remembered() {
    let server = server().await;
    let inbox = inbox(server);
    let delivery = delivery();
    let guard = first(&inbox, &delivery.clone().with_attempt(attempt(9))).await;
    let newer = delivery.clone().with_attempt(attempt(10));
    assert!(matches!(begin(&inbox, &newer).await, Entry::InProgress(_)));
    assert!(ttl(server, &delivery).await <= LONG, "the claim lasts as long as it did");
    guard.release().await.expect("it is released");
    let late = begin(&inbox, &delivery.clone().with_attempt(attempt(9))).await;
    assert!(matches!(late, Entry::Stale { seen } if seen == attempt(10)), "{late:?}");
    process(&inbox, &newer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_for_less_than_the_redelivery_horizon_is_refused() {
    let builder = settings(server().await.port()).redelivery_horizon(Duration::from_secs(60));
    let inbox = builder.build().expect("good settings");
    let delivery = delivery();
    for ttl in [Duration::ZERO, Duration::from_secs(59)] {
        let refused = inbox.check_and_mark_processed(&delivery.consumer, delivery.event, ttl).await;
        assert!(matches!(refused, Err(InboxError::Config(_))), "{refused:?}");
    }
    process(&inbox, &delivery).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_forgotten() {
    let inbox = settings(server().await.port()).claim(SHORT / 2).keep(SHORT).build().expect("good settings");
    let delivery = delivery();
    process(&inbox, &delivery).await;
    testkit::eventually(PATIENCE, || async { begin(&inbox, &delivery).await.first().is_some() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_the_scripts_gets_them_again() {
    let server = Redis::start().await.expect("Redis");
    let inbox = inbox(&server);
    let (one, other) = (delivery(), delivery());
    let guard = first(&inbox, &one).await;
    command(&server, &["script", "flush"]).await;
    guard.commit().await.expect("it commits");
    command(&server, &["script", "flush"]).await;
    first(&inbox, &other).await.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_few_permissions() {
    let server = Redis::builder().password("admin").start().await.expect("Redis");
    let few = ["+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+pexpire", "+ping"];
    let user = ["acl", "setuser", "consumer", "on", ">canary", "~pf:evt:processed:*"];
    command(&server, &[&user[..], &few[..]].concat()).await;
    let with = |builder: postrider_inbox::redis::RedisInboxBuilder| {
        builder.username("consumer").password("canary").build().expect("good settings")
    };
    let inbox = with(settings(server.port()).claim(KEPT));
    let delivery = delivery().with_attempt(attempt(1));
    let guard = first(&inbox, &delivery).await;
    testkit::eventually(PATIENCE, || async { calls(&server, "pexpire").await > 0 }).await;
    guard.release().await.expect("it is released");
    process(&inbox, &delivery).await;

    let elsewhere = with(settings(server.port()).prefix("other"));
    let refused = elsewhere.begin(&delivery).await.expect_err("not its keys");
    assert!(matches!(refused, InboxError::Failed(_)), "{refused:?}");
    let stranger = settings(server.port()).password("wrong").build().expect("good settings");
    let refused = stranger.begin(&delivery).await.expect_err("a wrong password");
    assert!(matches!(refused, InboxError::Failed(_)), "{refused:?}");
    // The credentials may be in the address as well.
    let url = format!("redis://consumer:canary@127.0.0.1:{}", server.port());
    assert!(begin(&RedisInbox::builder(url).build().expect("good"), &delivery).await.is_already_processed());
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_only_a_trusted_certificate_is_accepted() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let certificate = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let file = directory.path().join(format!("{name}.pem"));
        std::fs::write(&file, made.cert.pem()).expect("written");
        (made.cert.pem(), made.signing_key.serialize_pem(), file)
    };
    let (cert, key, trusted) = certificate("127.0.0.1");
    let (_, _, stranger) = certificate("stranger");
    let server = Redis::builder().tls(cert, key).start().await.expect("Redis");
    let delivery = delivery();
    let encrypted = RedisInbox::builder(server.url()).ca_file(trusted).build().expect("good settings");
    process(&encrypted, &delivery).await;
    for builder in [
        RedisInbox::builder(server.url()).ca_file(&stranger),
        RedisInbox::builder(server.url()),
        RedisInbox::cluster([server.url()]).ca_file(&stranger),
    ] {
        // Somebody in the middle is no reason to do without protection.
        for then in [Unreachable::Refuse, Unreachable::Proceed] {
            let inbox = builder.clone().when_unreachable(then).build().expect("good settings");
            let refused = inbox.begin(&delivery).await.expect_err("it is not trusted");
            assert!(matches!(refused, InboxError::Failed(_)), "{refused:?}");
            let why = std::error::Error::source(&refused).expect("a cause").to_string();
            assert!(why.contains("certificate"), "{why}");
        }
    }
}
