//! What the tests of the inbox on Redis share.
#![allow(dead_code)] // not every test needs everything

use std::time::Duration;

use postrider_inbox::redis::RedisInboxBuilder;
use postrider_inbox::{Attempt, ConsumerName, Delivery, Entry, Guard, Inbox, InboxError, RedisGuard, RedisInbox};
use testkit::Proxy;
use testkit::brokers::redis::Redis;
use uuid::Uuid;

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A claim that runs out soon.
pub const SHORT: Duration = Duration::from_millis(500);
/// A claim that is extended soon, and does not run out on a busy machine.
pub const KEPT: Duration = Duration::from_secs(6);
/// A claim that does not run out in a test.
pub const LONG: Duration = Duration::from_secs(600);
pub const KEEP: Duration = Duration::from_secs(3_600);

pub fn mailer() -> ConsumerName {
    ConsumerName::new("mailer").expect("a plain name")
}

pub fn delivery() -> Delivery {
    Delivery::new(mailer(), Uuid::now_v7())
}

pub fn attempt(number: u32) -> Attempt {
    Attempt { replayed: 0, number }
}

/// Settings for a server that answers, however busy the machine is.
pub fn settings(port: u16) -> RedisInboxBuilder {
    RedisInbox::builder(format!("redis://127.0.0.1:{port}"))
        .claim(LONG)
        .connect_timeout(Duration::from_secs(30))
        .response_timeout(Duration::from_secs(30))
        .commit_timeout(PATIENCE)
}

pub fn inbox(server: &Redis) -> RedisInbox {
    settings(server.port()).build().expect("good settings")
}

pub async fn proxy(server: &Redis) -> Proxy {
    Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy")
}

pub fn key(delivery: &Delivery) -> String {
    format!("pf:evt:processed:{}:{}", delivery.consumer, delivery.event)
}

/// What the key of an event holds; nothing if there is none.
pub async fn value(server: &Redis, delivery: &Delivery) -> String {
    command(server, &["get", &key(delivery)]).await
}

/// Runs a command and answers what it printed, without the end of the line.
pub async fn command(server: &Redis, words: &[&str]) -> String {
    server.command(words).await.expect("the command works").trim_end_matches('\n').to_owned()
}

/// How often the server has run a command.
pub async fn calls(server: &Redis, name: &str) -> u64 {
    let stats = command(server, &["info", "commandstats"]).await;
    let head = format!("cmdstat_{name}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&head)?.split(',').next()?.parse().ok());
    line.unwrap_or(0)
}

pub async fn begin(inbox: &RedisInbox, delivery: &Delivery) -> Entry<RedisGuard> {
    inbox.begin(delivery).await.expect("the inbox answers")
}

pub async fn first(inbox: &RedisInbox, delivery: &Delivery) -> RedisGuard {
    begin(inbox, delivery).await.first().expect("it is the first delivery")
}

pub async fn process(inbox: &RedisInbox, delivery: &Delivery) {
    first(inbox, delivery).await.commit().await.expect("it commits");
}

/// Waits until the event is let in, as a broker does that brings it again and again.
pub async fn let_in(inbox: &RedisInbox, delivery: &Delivery) -> RedisGuard {
    let again = async {
        loop {
            match inbox.begin(delivery).await {
                Ok(Entry::First(guard)) => return guard,
                Ok(Entry::InProgress(_)) | Err(InboxError::Unavailable(_)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => panic!("the event is not free: {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it is let in")
}
