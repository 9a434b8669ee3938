//! The inbox on a Redis cluster keeps every promise of the inbox seam.
#![cfg(feature = "redis")]

mod redis_support;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use postrider_inbox::redis::Warning;
use postrider_inbox::{Guard, RedisGuard, RedisInbox};
use redis_support::*;
use testkit::brokers::redis::{Redis, RedisCluster};
use testkit::inbox::Harness;
use tokio::sync::OnceCell;
use uuid::Uuid;

/// One cluster for all tests of the process; each has a prefix of its own.
static CLUSTER: OnceCell<RedisCluster> = OnceCell::const_new();

async fn cluster() -> &'static RedisCluster {
    CLUSTER.get_or_init(|| async { RedisCluster::start().await.expect("a cluster") }).await
}

struct OnCluster {
    prefix: String,
    effects: Mutex<HashMap<Uuid, usize>>,
}

impl Harness for OnCluster {
    type Inbox = RedisInbox;
    const IS_EXACT: bool = false;

    fn events() -> usize {
        testkit::inbox::scaled(500)
    }

    async fn start() -> Self {
        Self { prefix: format!("test:{}", Uuid::now_v7()), effects: Mutex::default() }
    }

    async fn inbox(&self) -> RedisInbox {
        // A busy machine may answer late.
        let builder = RedisInbox::cluster(cluster().await.urls()).prefix(&self.prefix).claim(LONG);
        builder.response_timeout(PATIENCE).connect_timeout(PATIENCE).build().expect("good settings")
    }

    async fn effect(&self, _: &mut RedisGuard, event: Uuid) {
        *self.effects.lock().unwrap_or_else(PoisonError::into_inner).entry(event).or_default() += 1;
        tokio::task::yield_now().await;
    }

    async fn effects(&self) -> HashMap<Uuid, usize> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

testkit::inbox_conformance!(OnCluster);

#[tokio::test(flavor = "multi_thread")]
async fn events_are_on_all_servers_of_the_cluster() {
    let cluster = cluster().await;
    let inbox = RedisInbox::cluster([cluster.nodes[0].url()]).prefix("spread").build().expect("good settings");
    for _ in 0..100 {
        process(&inbox, &delivery()).await;
    }
    for node in &cluster.nodes {
        let keys = command(node, &["keys", "spread:*"]).await;
        assert!(keys.lines().filter(|key| !key.is_empty()).count() > 5, "{keys}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_every_server_of_the_cluster_is_examined() {
    let cluster = RedisCluster::start().await.expect("a cluster");
    let inbox = RedisInbox::cluster(cluster.urls()).build().expect("good settings");
    assert_eq!(inbox.examine().await.expect("it answers"), [Warning::NoPersistence]);
    command(&cluster.nodes[2], &["config", "set", "maxmemory-policy", "allkeys-lru"]).await;
    let warnings = inbox.examine().await.expect("it answers");
    let evicts = Warning::Eviction { policy: "allkeys-lru".into(), is_limited: false };
    assert!(warnings.len() == 2 && warnings.contains(&evicts), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_settings_of_different_servers_are_not_mixed() {
    let cluster = RedisCluster::start().await.expect("a cluster");
    let inbox = RedisInbox::cluster(cluster.urls()).build().expect("good settings");
    command(&cluster.nodes[0], &["config", "set", "maxmemory", "1000000000"]).await;
    command(&cluster.nodes[2], &["config", "set", "maxmemory-policy", "allkeys-lru"]).await;
    let evicts = Warning::Eviction { policy: "allkeys-lru".into(), is_limited: false };
    // Servers answer in any order.
    for _ in 0..50 {
        let warnings = inbox.examine().await.expect("it answers");
        assert!(warnings.len() == 2 && warnings.contains(&evicts), "{warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_server_of_the_cluster_that_was_away_is_found_again() {
    let cluster = RedisCluster::start().await.expect("a cluster");
    let inbox = RedisInbox::cluster(cluster.urls()).claim(LONG).build().expect("good settings");
    let deliveries: Vec<_> = (0..30).map(|_| delivery()).collect();
    for delivery in &deliveries {
        process(&inbox, delivery).await;
    }
    cluster.nodes[1].restart().await.expect("it starts again");
    // It has forgotten everything, so what was on it is let in again, and the rest is not.
    let mut again = 0;
    for delivery in &deliveries {
        let entry = async {
            loop {
                match postrider_inbox::Inbox::begin(&inbox, delivery).await {
                    Ok(entry) => break entry,
                    Err(error) => {
                        assert!(error.is_transient(), "{error:?}");
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    }
                }
            }
        };
        let entry = tokio::time::timeout(PATIENCE, entry).await.expect("the cluster is back");
        if let Some(guard) = entry.first() {
            again += 1;
            guard.commit().await.expect("it commits");
        }
    }
    assert!(again > 0 && again < 30, "{again}");
}

/// What a slot is moved with, step by step.
struct Move<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: &'a Redis,
    to: &'a Redis,
}

impl<'a> Move<'a> {
    async fn of(cluster: &'a RedisCluster, key: &str) -> Self {
        let slot = command(&cluster.nodes[0], &["cluster", "keyslot", key]).await;
        let mut at = 0;
        for (number, node) in cluster.nodes.iter().enumerate() {
            if command(node, &["cluster", "countkeysinslot", &slot]).await != "0" {
                at = number;
            }
        }
        Self { cluster, slot, from: &cluster.nodes[at], to: &cluster.nodes[(at + 1) % cluster.nodes.len()] }
    }

    /// Moves the key; who asks the old server for it is sent to the new one with `ASK`.
    async fn key(&self, key: &str) {
        let (from, to) = (command(self.from, &["cluster", "myid"]).await, command(self.to, &["cluster", "myid"]).await);
        command(self.to, &["cluster", "setslot", &self.slot, "importing", &from]).await;
        command(self.from, &["cluster", "setslot", &self.slot, "migrating", &to]).await;
        let moved = command(self.from, &["migrate", "127.0.0.1", &self.to.port().to_string(), key, "0", "5000"]).await;
        assert_eq!(moved, "OK");
    }

    /// Ends the move; who asks the old server is sent to the new one with `MOVED`.
    async fn end(&self) {
        let to = command(self.to, &["cluster", "myid"]).await;
        command(self.to, &["cluster", "setslot", &self.slot, "node", &to]).await;
        for node in &self.cluster.nodes {
            command(node, &["cluster", "setslot", &self.slot, "node", &to]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r67_a_guard_whose_slot_is_moved_commits_nevertheless() {
    let cluster = RedisCluster::start().await.expect("a cluster");
    let inbox = RedisInbox::cluster(cluster.urls()).claim(LONG).build().expect("good settings");
    for (is_ended, redirection) in [(false, "errorstat_ASK:"), (true, "errorstat_MOVED:")] {
        let delivery = delivery();
        let guard = first(&inbox, &delivery).await;
        let slot = Move::of(&cluster, &key(&delivery)).await;
        slot.key(&key(&delivery)).await;
        if is_ended {
            slot.end().await;
        }
        guard.commit().await.expect("it still has it");
        let errors = command(slot.from, &["info", "errorstats"]).await;
        assert!(errors.contains(redirection), "the old server was asked: {errors}");
        slot.end().await;
        let there = value(slot.to, &delivery).await;
        assert!(there.starts_with("processed:"), "{there}");
        assert!(begin(&inbox, &delivery).await.is_already_processed());
    }
}
