//! Passwords are in no log, error or debug output, whatever goes wrong; what an operator has to know is in the log.
#![cfg(feature = "redis")]

mod redis_support;

use postrider_inbox::redis::Unreachable;
use postrider_inbox::{Guard, Inbox, RedisInbox};
use redis_support::*;
use testkit::brokers::redis::Redis;
use testkit::log::Log;

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_no_canary_is_seen_and_every_warning_is() {
    let log = Log::listen();

    let server = Redis::builder().password("canary-password").start().await.expect("Redis");
    command(&server, &["config", "set", "maxmemory-policy", "allkeys-lru"]).await;
    let port = server.port();
    let mut seen = Vec::new();
    for (builder, is_right) in [
        (settings(port).password("canary-password"), true),
        (RedisInbox::builder(format!("redis://:canary-password@127.0.0.1:{port}")), true),
        (settings(port).password("canary-wrong"), false),
        (settings(port).username("canary-user").password("canary-password"), false),
        (RedisInbox::builder(format!("redis://canary-user:canary-wrong@127.0.0.1:{port}")), false),
        (RedisInbox::cluster([server.url()]).password("canary-password"), false),
        (RedisInbox::cluster(["redis://canary-user:canary-wrong@127.0.0.1:1"]), false),
        (settings(1).password("canary-password"), false),
        (settings(1).password("canary-password").when_unreachable(Unreachable::Proceed), true),
    ] {
        seen.push(format!("{builder:?}"));
        let inbox = builder.clone().build().expect("good settings");
        let entry = inbox.begin(&delivery()).await;
        assert_eq!(entry.is_ok(), is_right, "{builder:?} {entry:?}");
        seen.push(format!("{entry:?} {inbox:?} {:?} {:?}", inbox.examine().await, builder.connect().await));
        if let Some(guard) = entry.ok().and_then(|entry| entry.first()) {
            seen.push(format!("{:?}", guard.commit().await));
        }
    }
    for text in &seen {
        assert!(!text.contains("canary"), "{text}");
    }
    let log = log.text();
    for wanted in [
        "connected to Redis",
        "maxmemory-policy is allkeys-lru",
        "nothing is written to disk",
        "an event is handled without the inbox",
        "an event was handled, but is not remembered",
        "events are handled without it",
    ] {
        assert!(log.lines().any(|line| line.contains(wanted)), "{wanted} is not in the log: {log}");
    }
    assert_eq!(log.lines().find(|line| line.contains("canary")), None, "in the log");
}
