//! The sink `redis` against a real server: the conformance suite, and what is special to Redis Streams.
#![cfg(feature = "redis")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Destination, Outcome, Payload, Sink};
use postrider_sinks::kind::Binding;
use postrider_sinks::setting::Secret;
use postrider_sinks::{Format, RedisClient, RedisConfig, SinkClient};
use redis::Commands;
use redis::streams::StreamRangeReply;
use testkit::brokers::redis::{Redis, RedisCluster};
use testkit::sinks::{Arrival, Broker, message, of_payload};
use testkit::{Mode, Proxy, eventually};

const PATIENCE: Duration = Duration::from_secs(180);

fn config(port: u16) -> RedisConfig {
    let mut config = RedisConfig::default();
    config.urls = vec![format!("redis://127.0.0.1:{port}")];
    (config.connect_timeout, config.timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    config.max_message_size = 1_500_000;
    config
}

fn sink(config: &RedisConfig, destination: &str) -> Arc<dyn Sink> {
    let client = RedisClient::new(config).expect("a client");
    client.bind(Binding::to(destination.parse().expect("a destination"))).expect("a sink")
}

fn arrival(fields: &std::collections::HashMap<String, redis::Value>) -> Arrival {
    let bytes = |value: &redis::Value| match value {
        redis::Value::BulkString(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let headers = fields.iter().filter(|(name, _)| *name != "payload");
    let text = |value| String::from_utf8(bytes(value)).expect("text");
    let headers: BTreeMap<_, _> = headers.map(|(name, value)| (name.clone(), text(value))).collect();
    Arrival { body: bytes(&fields["payload"]), key: headers.get("key").cloned(), headers }
}

/// All that a stream has, read with a plain connection.
async fn read(server: &Redis, stream: &str) -> Vec<Arrival> {
    let (url, stream) = (server.url(), stream.to_owned());
    let read = move || {
        let mut connection = redis::Client::open(url).expect("a client").get_connection().expect("a reader");
        let entries: StreamRangeReply = connection.xrange_all(stream).expect("entries");
        entries.ids.iter().map(|entry| arrival(&entry.map)).collect()
    };
    tokio::task::spawn_blocking(read).await.expect("it was read")
}

struct Side {
    server: Redis,
    proxy: Proxy,
}

#[async_trait]
impl Broker for Side {
    async fn start() -> Self {
        let server = Redis::builder().durable().start().await.expect("Redis");
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy");
        Self { server, proxy }
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = config(self.proxy.port());
        (config.connect_timeout, config.timeout) = (patience, patience);
        let client = RedisClient::new(&config).expect("a client");
        let destination: Destination = "shop:{topic}".parse().expect("a destination");
        client.bind(Binding::to(destination).format(format)).expect("a sink")
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        read(&self.server, "shop:order.placed").await
    }

    async fn stop(&self) {
        self.server.kill().await.expect("killed");
    }

    async fn restart(&self) {
        self.server.restart().await.expect("started");
    }

    async fn obstruct(&self) {
        self.server.command(&["config", "set", "maxmemory", "1"]).await.expect("full");
    }

    async fn clear(&self) {
        self.server.command(&["config", "set", "maxmemory", "0"]).await.expect("room");
    }

    async fn silence(&self) {
        self.proxy.set(Mode::HalfOpen);
    }

    async fn speak(&self) {
        self.proxy.set(Mode::Pass);
    }

    fn poison(&self) -> ClaimedMessage {
        let mut message = message(1);
        message.topic = "order\r\nplaced".into();
        message
    }

    fn too_large(&self) -> usize {
        1_500_001
    }
}

testkit::sink_conformance!(Side);

/// A certificate and its key in PEM, and the file of the certificate for clients that trust it.
fn certificate(name: &str, directory: &tempfile::TempDir) -> (String, String, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let file = directory.path().join(format!("{name}.pem"));
    std::fs::write(&file, made.cert.pem()).expect("written");
    (made.cert.pem(), made.signing_key.serialize_pem(), file)
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_only_a_trusted_certificate_of_the_right_name_is_accepted() {
    // A program has one crypto provider; another test may have been first.
    let _ = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().install_default();
    let directory = tempfile::TempDir::new().expect("a directory");
    let (cert, key, trusted) = certificate("127.0.0.1", &directory);
    let (_, _, stranger) = certificate("stranger", &directory);
    let server = Redis::builder().tls(cert, key).start().await.expect("Redis");
    let mut config = config(server.port());
    config.urls = vec![server.url()];
    config.tls.ca_file = Some(trusted.clone());
    let encrypted = sink(&config, "shop");
    assert_eq!(outcome(&*encrypted, &message(1)).await, Outcome::Accepted);
    assert_eq!(encrypted.ready().await, Ok(()));
    config.tls.ca_file = Some(stranger);
    let distrusted = outcome(&*sink(&config, "shop"), &message(2)).await;
    assert!(retries(&distrusted, "nothing was sent"), "{distrusted:?}");
    config.tls.ca_file = None;
    let unknown = outcome(&*sink(&config, "shop"), &message(3)).await;
    assert!(retries(&unknown, "nothing was sent"), "{unknown:?}");
    config.tls.ca_file = Some(trusted);
    config.urls = vec![format!("rediss://localhost:{}", server.port())];
    let misnamed = outcome(&*sink(&config, "shop"), &message(4)).await;
    assert!(retries(&misnamed, "nothing was sent"), "{misnamed:?}");
}

/// The one outcome of one message.
async fn outcome(sink: &dyn Sink, message: &ClaimedMessage) -> Outcome {
    sink.publish(std::slice::from_ref(message)).await.remove(0)
}

fn retries(outcome: &Outcome, word: &str) -> bool {
    matches!(outcome, Outcome::Retry { why, .. } if why.contains(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn r54_each_error_of_the_server_is_retried_and_named() {
    let server = Redis::start().await.expect("Redis");
    let sink = sink(&config(server.port()), "shop:{topic}");
    assert_eq!(outcome(&*sink, &message(1)).await, Outcome::Accepted);

    server.command(&["config", "set", "maxmemory", "1"]).await.expect("set");
    let full = outcome(&*sink, &message(2)).await;
    assert!(retries(&full, "OOM"), "{full:?}");
    server.command(&["config", "set", "maxmemory", "0"]).await.expect("set");
    assert_eq!(outcome(&*sink, &message(2)).await, Outcome::Accepted);

    // A key that is no stream fails its own messages and no others.
    server.command(&["set", "shop:clash", "x"]).await.expect("set");
    let mut clash = message(3);
    clash.topic = "clash".into();
    let outcomes = sink.publish(&[message(4), clash, message(5)]).await;
    assert!(retries(&outcomes[1], "WRONGTYPE"), "{outcomes:?}");
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Accepted, &Outcome::Accepted));

    server.command(&["config", "set", "replica-read-only", "yes"]).await.expect("set");
    server.command(&["replicaof", "127.0.0.1", "1"]).await.expect("a replica of nobody");
    let replica = outcome(&*sink, &message(6)).await;
    assert!(retries(&replica, "READONLY"), "{replica:?}");
    server.command(&["replicaof", "no", "one"]).await.expect("alone again");
    assert_eq!(outcome(&*sink, &message(6)).await, Outcome::Accepted);
    assert_eq!(read(&server, "shop:order.placed").await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_permissions_are_the_operators_to_mend() {
    let server = Redis::builder().password("canary-admin").start().await.expect("Redis");
    let user = ["acl", "setuser", "relay", "on", ">canary-relay", "~shop:*", "+xadd", "+ping", "+client"];
    server.command(&user).await.expect("a user");
    let mut right = config(server.port());
    (right.username, right.password) = (Some("relay".into()), Some(Secret::new("canary-relay")));
    let allowed = sink(&right, "shop:{topic}");
    assert_eq!(outcome(&*allowed, &message(1)).await, Outcome::Accepted);
    assert_eq!(allowed.ready().await, Ok(()));
    let refused = outcome(&*sink(&right, "other:{topic}"), &message(1)).await;
    assert!(retries(&refused, "NOPERM"), "{refused:?}");

    right.password = Some(Secret::new("canary-wrong"));
    for config in [right, config(server.port())] {
        let sink = sink(&config, "shop:{topic}");
        let refused = outcome(&*sink, &message(1)).await;
        assert!(retries(&refused, "username and password"), "{refused:?}");
        let why = sink.ready().await.expect_err("not without a password");
        assert!(!format!("{refused:?} {why} {sink:?}", sink = config).contains("canary"));
    }
}

/// R54: what Redis loses after it has taken a message is Redis' loss, and the next message is taken again.
#[tokio::test(flavor = "multi_thread")]
async fn r54_a_restart_without_persistence_loses_what_was_delivered() {
    let server = Redis::start().await.expect("Redis");
    let sink = sink(&config(server.port()), "shop");
    assert_eq!(outcome(&*sink, &message(1)).await, Outcome::Accepted);
    server.restart().await.expect("started");
    let sent = message(2);
    let again = || async { outcome(&*sink, &sent).await == Outcome::Accepted };
    eventually(PATIENCE, again).await;
    let ids: Vec<_> = read(&server, "shop").await.iter().filter_map(Arrival::id).collect();
    assert_eq!(ids, [sent.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r54_a_stream_is_trimmed_and_created_as_the_operator_says() {
    let server = Redis::start().await.expect("Redis");
    let mut config = config(server.port());
    (config.maxlen, config.exact_maxlen) = (Some(10), true);
    let exact = sink(&config, "exact");
    let sent: Vec<_> = (0..50).map(message).collect();
    assert_eq!(exact.publish(&sent).await, vec![Outcome::Accepted; 50]);
    let left: Vec<_> = read(&server, "exact").await.iter().filter_map(Arrival::id).collect();
    assert_eq!(left, sent[40..].iter().map(|message| message.id).collect::<Vec<_>>());
    config.exact_maxlen = false;
    let about = sink(&config, "about");
    assert_eq!(about.publish(&(0..1_000).map(message).collect::<Vec<_>>()).await, vec![Outcome::Accepted; 1_000]);
    let count = read(&server, "about").await.len();
    assert!((10..1_000).contains(&count), "{count}");
    config.create_streams = false;
    let missing = outcome(&*sink(&config, "missing"), &message(1)).await;
    assert!(retries(&missing, "no such stream"), "{missing:?}");
    assert_eq!(outcome(&*sink(&config, "exact"), &message(1)).await, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_its_replicas_is_not_delivered() {
    let server = Redis::start().await.expect("Redis");
    let mut config = config(server.port());
    config.wait_replicas = 1;
    (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(3));
    let sink = sink(&config, "shop");
    // On a busy machine the time may be over before the replicas were asked for.
    eventually(PATIENCE, || async {
        let alone = outcome(&*sink, &message(1)).await;
        assert_ne!(alone, Outcome::Accepted);
        matches!(&alone, Outcome::Unknown(why) if why.contains("replicas"))
    })
    .await;
    let replica = Redis::start().await.expect("Redis");
    replica.command(&["replicaof", "127.0.0.1", &server.port().to_string()]).await.expect("a replica");
    let sent = message(2);
    eventually(PATIENCE, || async { outcome(&*sink, &sent).await == Outcome::Accepted }).await;
}

/// With replicas wanted, an entry's id alone is no delivery, also if the connection broke before they could be asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_before_the_connection_broke_is_not_delivered_without_its_replicas() {
    let server = Redis::start().await.expect("Redis");
    server.command(&["xgroup", "create", "shop", "readers", "0", "mkstream"]).await.expect("a stream");
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy");
    let mut sent: Vec<_> = (0..1_000).map(message).collect();
    sent.iter_mut().for_each(|message| message.topic = "shop".into());
    // The answer that is cut off says that there is no such stream.
    sent[999].topic = "missing".into();
    for (wait_replicas, is_any_delivered) in [(0, true), (1, false)] {
        let mut config = config(proxy.port());
        (config.create_streams, config.wait_replicas) = (false, wait_replicas);
        let sink = sink(&config, "{topic}");
        proxy.cut_reply_containing(b"$-1\r\n");
        let outcomes = sink.publish(&sent).await;
        assert_eq!(outcomes.contains(&Outcome::Accepted), is_any_delivered, "{wait_replicas}: {outcomes:?}");
    }
    assert_eq!(proxy.cuts(), 2);
}

/// Servers and firewalls close connections that rest; that costs no message its certainty.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_closed_while_it_rested_is_replaced_before_anything_is_sent() {
    let server = Redis::builder().line("timeout 6").start().await.expect("Redis");
    let sink = sink(&config(server.port()), "shop");
    assert_eq!(outcome(&*sink, &message(1)).await, Outcome::Accepted);
    // The one that asks is there as well.
    let is_closed = || async { server.command(&["client", "list"]).await.expect("a list").lines().count() == 1 };
    eventually(PATIENCE, is_closed).await;
    assert_eq!(outcome(&*sink, &message(2)).await, Outcome::Accepted);
}

/// What was answered before the connection broke is known, the rest is not; nothing is lost and nothing is sent later.
#[tokio::test(flavor = "multi_thread")]
async fn r50_a_connection_that_breaks_in_a_pipeline_leaves_no_message_without_a_true_outcome() {
    let server = Redis::start().await.expect("Redis");
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy");
    let sink = sink(&config(proxy.port()), "shop");
    assert_eq!(outcome(&*sink, &message(0)).await, Outcome::Accepted);
    proxy.cut_reply_containing(b"-0\r\n");
    let sent: Vec<_> = (0..500).map(message).collect();
    let outcomes = sink.publish(&sent).await;
    assert_eq!(proxy.cuts(), 1);
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    let stored: Vec<_> = read(&server, "shop").await.iter().filter_map(Arrival::id).collect();
    for (message, outcome) in sent.iter().zip(&outcomes) {
        match outcome {
            Outcome::Accepted => assert!(stored.contains(&message.id)),
            Outcome::Unknown(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(outcome(&*sink, &message(1)).await, Outcome::Accepted, "a new connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_on_all_servers_of_a_cluster_get_their_messages_in_order() {
    let cluster = RedisCluster::start().await.expect("a cluster");
    let mut config = config(0);
    (config.cluster, config.urls) = (true, cluster.urls());
    config.max_message_size = 2_000_000;
    let sink = sink(&config, "shop:{key}");
    assert_eq!(sink.ready().await, Ok(()));
    let mut sent: Vec<_> = (0..300).map(message).collect();
    for (at, message) in sent.iter_mut().enumerate() {
        message.key = Some(format!("{}", at % 10));
    }
    sent[7] = of_payload(Payload::Bytes(vec![0xff; 1_000_000]));
    sent[7].key = Some("7".into());
    assert_eq!(sink.publish(&sent).await, vec![Outcome::Accepted; 300]);
    let mut used = 0;
    for node in &cluster.nodes {
        let keys = node.command(&["keys", "shop:*"]).await.expect("keys");
        used += usize::from(!keys.trim().is_empty());
        for key in keys.lines().filter(|key| !key.is_empty()) {
            let ids: Vec<_> = read(node, key).await.iter().map(Arrival::id).collect();
            let of_key = |message: &&ClaimedMessage| message.key.as_deref() == key.strip_prefix("shop:");
            assert_eq!(ids, sent.iter().filter(of_key).map(|message| Some(message.id)).collect::<Vec<_>>(), "{key}");
        }
    }
    assert_eq!(used, 3, "ten streams are on all three servers");

    // A server that is gone fails its own streams; with it back everything is taken again.
    cluster.nodes[0].kill().await.expect("killed");
    (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(3));
    let sink = self::sink(&config, "shop:{key}");
    let outcomes = sink.publish(&sent).await;
    assert!(outcomes.iter().any(|outcome| *outcome != Outcome::Accepted), "its streams cannot be reached");
    cluster.nodes[0].restart().await.expect("started");
    eventually(PATIENCE, || async {
        sink.publish(&sent[..10]).await.iter().all(|outcome| *outcome == Outcome::Accepted)
    })
    .await;
}
