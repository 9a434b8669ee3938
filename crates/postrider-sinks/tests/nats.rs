//! The sink `nats` against a real server: the conformance suite, and what is special to JetStream.
#![cfg(feature = "nats")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use futures::StreamExt;
use postrider_core::{ClaimedMessage, Destination, Outcome, Payload, Sink};
use postrider_sinks::kind::Binding;
use postrider_sinks::setting::Secret;
use postrider_sinks::{Format, NatsClient, NatsConfig, SinkClient};
use testkit::brokers::nats::Nats;
use testkit::sinks::{Arrival, Broker, message, of_payload};
use testkit::{Mode, Proxy, eventually};

const PATIENCE: Duration = Duration::from_secs(180);

fn config(port: u16) -> NatsConfig {
    let mut config = NatsConfig::default();
    config.servers = vec![format!("nats://127.0.0.1:{port}")];
    (config.connect_timeout, config.timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    config
}

fn sink(config: &NatsConfig, destination: &str) -> Arc<dyn Sink> {
    let client = NatsClient::new(config).expect("a client");
    client.bind(Binding::to(destination.parse().expect("a destination"))).expect("a sink")
}

async fn jetstream(server: &Nats) -> Context {
    jetstream::new(async_nats::connect(server.url()).await.expect("a reader"))
}

async fn stream(server: &Nats, change: impl FnOnce(&mut Config)) -> Context {
    let context = jetstream(server).await;
    let mut config = Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..Config::default() };
    change(&mut config);
    context.create_stream(config).await.expect("a stream");
    context
}

/// All that a stream has.
async fn read(context: &Context) -> Vec<Arrival> {
    let stream = context.get_stream("ORDERS").await.expect("the stream");
    let count = usize::try_from(stream.cached_info().state.messages).expect("a number");
    let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
    let consumer = stream.create_consumer(config).await.expect("a consumer");
    let mut arrivals = Vec::new();
    while arrivals.len() < count {
        let mut batch = consumer.fetch().max_messages(count - arrivals.len()).messages().await.expect("messages");
        while let Some(message) = batch.next().await {
            let message = message.expect("a message");
            let headers = message.headers.iter().flat_map(|headers| headers.iter());
            let headers = headers.map(|(name, values)| (name.to_string(), values[0].to_string()));
            let headers: BTreeMap<_, _> = headers.collect();
            let key = headers.get("key").cloned();
            arrivals.push(Arrival { body: message.payload.to_vec(), headers, key });
        }
    }
    arrivals
}

struct Side {
    server: Nats,
    proxy: Proxy,
}

#[async_trait]
impl Broker for Side {
    async fn start() -> Self {
        let server = Nats::builder().line("max_payload: 2MB").start().await.expect("NATS");
        stream(&server, |_| ()).await;
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy");
        Self { server, proxy }
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = config(self.proxy.port());
        (config.connect_timeout, config.timeout) = (patience, patience);
        let client = NatsClient::new(&config).expect("a client");
        let destination: Destination = "orders.{topic}".parse().expect("a destination");
        client.bind(Binding::to(destination).format(format)).expect("a sink")
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        read(&jetstream(&self.server).await).await
    }

    async fn stop(&self) {
        self.server.kill().await.expect("killed");
    }

    async fn restart(&self) {
        self.server.restart().await.expect("started");
    }

    async fn obstruct(&self) {
        let mut config = Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..Config::default() };
        (config.max_bytes, config.discard) = (1, DiscardPolicy::New);
        jetstream(&self.server).await.update_stream(config).await.expect("full");
    }

    async fn clear(&self) {
        let config = Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..Config::default() };
        jetstream(&self.server).await.update_stream(config).await.expect("room");
    }

    async fn silence(&self) {
        self.proxy.set(Mode::HalfOpen);
    }

    async fn speak(&self) {
        self.proxy.set(Mode::Pass);
    }

    fn poison(&self) -> ClaimedMessage {
        let mut message = message(1);
        message.topic = "order.*".into();
        message
    }

    fn too_large(&self) -> usize {
        2 * 1024 * 1024
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
    let tls = "tls { cert_file: \"{home}/cert.pem\", key_file: \"{home}/key.pem\" }";
    let server = Nats::builder().line(tls).file("cert.pem", cert).file("key.pem", key).start().await.expect("NATS");
    let mut config = config(server.port());
    config.servers = vec![format!("tls://127.0.0.1:{}", server.port())];
    config.tls.ca_file = Some(trusted.clone());
    assert_eq!(sink(&config, "orders").ready().await, Ok(()));
    // A connection that cannot be made is tried for as long as it may.
    config.connect_timeout = Duration::from_secs(4);
    config.tls.ca_file = Some(stranger);
    let distrusted = outcome(&*sink(&config, "orders"), &message(1)).await;
    assert!(retries(&distrusted, "TLS failed"), "{distrusted:?}");
    config.tls.ca_file = None;
    let unknown = outcome(&*sink(&config, "orders"), &message(1)).await;
    assert!(retries(&unknown, "nothing was sent"), "{unknown:?}");
    config.tls.ca_file = Some(trusted.clone());
    config.servers = vec![format!("tls://localhost:{}", server.port())];
    let misnamed = outcome(&*sink(&config, "orders"), &message(1)).await;
    assert!(retries(&misnamed, "nothing was sent"), "{misnamed:?}");
    // A server without TLS gets nothing, neither message nor password, when TLS is a must.
    let plain = Nats::start().await.expect("NATS");
    config.servers = vec![plain.url()];
    let downgraded = outcome(&*sink(&config, "orders"), &message(1)).await;
    assert!(retries(&downgraded, "nothing was sent"), "{downgraded:?}");
}

/// The one outcome of one message.
async fn outcome(sink: &dyn Sink, message: &ClaimedMessage) -> Outcome {
    sink.publish(std::slice::from_ref(message)).await.remove(0)
}

fn retries(outcome: &Outcome, word: &str) -> bool {
    matches!(outcome, Outcome::Retry { why, .. } if why.contains(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn r53_a_message_that_no_stream_takes_is_not_delivered() {
    let server = Nats::start().await.expect("NATS");
    let mut config = config(server.port());
    (config.connect_timeout, config.timeout) = (Duration::from_secs(8), Duration::from_secs(8));
    let sink = sink(&config, "nowhere.{topic}");
    // A subscriber of core NATS gets it and answers nothing: that is no delivery.
    let client = async_nats::connect(server.url()).await.expect("a client");
    let nobody = outcome(&*sink, &message(1)).await;
    assert!(retries(&nobody, "no stream"), "{nobody:?}");
    let mut heard = client.subscribe("nowhere.>").await.expect("a subscription");
    client.publish("nowhere.first", "".into()).await.expect("sent");
    heard.next().await.expect("the subscription is in place");
    let sent = message(2);
    let (unanswered, _) = tokio::join!(outcome(&*sink, &sent), heard.next());
    assert!(matches!(unanswered, Outcome::Unknown(_)), "{unanswered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r53_limits_of_stream_and_server_fail_the_one_message() {
    let server = Nats::builder().line("max_payload: 64KB").start().await.expect("NATS");
    let context = stream(&server, |config| config.max_message_size = 4_096).await;
    let sink = sink(&config(server.port()), "orders.placed");
    let sized = |size: usize| of_payload(Payload::Bytes(vec![b'x'; size]));
    let mut headers = message(9);
    headers.headers.insert("long".into(), "x".repeat(70_000));
    let batch = [message(1), sized(8_000), message(2), sized(70_000), headers, message(3)];
    let outcomes = sink.publish(&batch).await;
    let kinds: Vec<_> = outcomes.iter().map(Outcome::kind).collect();
    assert_eq!(kinds, ["accepted", "reject", "accepted", "unsendable", "unsendable", "accepted"], "{outcomes:?}");
    assert_eq!(read(&context).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn r53_a_full_stream_takes_messages_again_once_it_has_room() {
    let server = Nats::start().await.expect("NATS");
    let full = |config: &mut Config| (config.max_messages, config.discard) = (2, DiscardPolicy::New);
    let context = stream(&server, full).await;
    let sink = sink(&config(server.port()), "orders.placed");
    let batch = [message(1), message(2), message(3)];
    let outcomes = sink.publish(&batch).await;
    assert_eq!(outcomes[..2], [Outcome::Accepted, Outcome::Accepted]);
    assert!(retries(&outcomes[2], "10077"), "{outcomes:?}");
    context.get_stream("ORDERS").await.expect("it").purge().await.expect("room");
    assert_eq!(outcome(&*sink, &batch[2]).await, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_cannot_land_in_another_stream_than_the_expected_one() {
    let server = Nats::start().await.expect("NATS");
    let context = stream(&server, |_| ()).await;
    let mut config = config(server.port());
    config.stream = Some("INVOICES".into());
    let sink = sink(&config, "orders.placed");
    let elsewhere = outcome(&*sink, &message(1)).await;
    assert!(retries(&elsewhere, "10060"), "{elsewhere:?}");
    assert_eq!(read(&context).await.len(), 0);
    let why = sink.ready().await.expect_err("there is no such stream");
    assert!(why.contains("INVOICES"), "{why}");
}

/// R50: the answer is lost, and the stream says the second time that it has the message.
#[tokio::test(flavor = "multi_thread")]
async fn r50_a_message_whose_answer_was_lost_is_a_duplicate_the_next_time() {
    let server = Nats::start().await.expect("NATS");
    let context = stream(&server, |_| ()).await;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.expect("a proxy");
    let sink = sink(&config(proxy.port()), "orders.placed");
    assert_eq!(outcome(&*sink, &message(1)).await, Outcome::Accepted);
    let sent = message(2);
    proxy.cut_reply_containing(b"\"ORDERS\"");
    let lost = outcome(&*sink, &sent).await;
    assert!(matches!(lost, Outcome::Unknown(_)), "{lost:?}");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(outcome(&*sink, &sent).await, Outcome::Duplicate);
    assert_eq!(read(&context).await.len(), 2, "it is stored once");
}

/// How many connections to a port are open on the side of the client.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let remote = format!("0100007F:{port:04X}");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields.get(2) == Some(&remote.as_str()) && fields.get(3) == Some(&"01")).count()
}

/// What was reported as not sent is not sent later by the client: the server stands still until its buffers are full,
/// then it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn r53_what_was_reported_as_not_sent_does_not_arrive_later() {
    let server = Nats::builder().line("max_payload: 1MB\nping_interval: \"1h\"").start().await.expect("NATS");
    drop(stream(&server, |_| ()).await);
    let mut config = config(server.port());
    (config.connect_timeout, config.timeout) = (Duration::from_secs(2), Duration::from_secs(3));
    let sink = sink(&config, "orders.placed");
    eventually(PATIENCE, || async { outcome(&*sink, &message(0)).await == Outcome::Accepted }).await;
    eventually(PATIENCE, || async { connections(server.port()) == 1 }).await;
    server.freeze().expect("frozen");
    let batch: Vec<_> = (0..1_000).map(|_| of_payload(Payload::Bytes(vec![b'x'; 60_000]))).collect();
    let more: Vec<_> = (0..1_000).map(|_| of_payload(Payload::Bytes(vec![b'x'; 60_000]))).collect();
    let (outcomes, others) = tokio::join!(sink.publish(&batch), sink.publish(&more));
    // The connection is given up by itself, while the server still stands.
    eventually(PATIENCE, || async { connections(server.port()) == 0 }).await;
    server.thaw().expect("thawed");
    let ready = || async { sink.ready().await.is_ok() };
    eventually(PATIENCE, ready).await;
    let unsent = |outcome: &Outcome| matches!(outcome, Outcome::Retry { .. });
    let all: Vec<_> = batch.iter().zip(&outcomes).chain(more.iter().zip(&others)).collect();
    let not_sent: Vec<_> = all.iter().filter(|(_, outcome)| unsent(outcome)).map(|(message, _)| message.id).collect();
    assert!(!not_sent.is_empty(), "there was more than room for");
    assert!(all.iter().all(|(_, outcome)| unsent(outcome) || matches!(outcome, Outcome::Unknown(_))));
    eventually(PATIENCE, || async { outcome(&*sink, &message(3)).await == Outcome::Accepted }).await;
    let arrived: Vec<_> = read(&jetstream(&server).await).await.iter().filter_map(Arrival::id).collect();
    assert!(not_sent.iter().all(|id| !arrived.contains(id)), "some arrived later");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_tokens_and_keys_let_us_in_and_a_wrong_one_is_the_operators_to_mend() {
    let users = "authorization { users: [ { user: \"relay\", password: \"canary\" } ] }";
    let server = Nats::builder().line(users).start().await.expect("NATS");
    let mut right = config(server.port());
    (right.user, right.password) = (Some("relay".into()), Some(Secret::new("canary")));
    assert_eq!(sink(&right, "orders.x").ready().await, Ok(()));
    right.password = Some(Secret::new("wrong-canary"));
    for mut refused in [right, config(server.port())] {
        // It is tried for as long as it may.
        refused.connect_timeout = Duration::from_secs(4);
        let sink = sink(&refused, "orders.x");
        let refused = outcome(&*sink, &message(1)).await;
        assert!(retries(&refused, "credentials"), "{refused:?}");
        assert!(!format!("{refused:?}").contains("canary"));
        assert!(sink.ready().await.is_err());
    }
    let server = Nats::builder().line("authorization { token: \"canary\" }").start().await.expect("NATS");
    let mut right = config(server.port());
    right.token = Some(Secret::new("canary"));
    assert_eq!(sink(&right, "orders.x").ready().await, Ok(()));

    let nkey = format!("authorization {{ users: [ {{ nkey: {NKEY} }} ] }}");
    let server = Nats::builder().line(nkey).start().await.expect("NATS");
    let mut right = config(server.port());
    right.nkey_seed = Some(Secret::new(NKEY_SEED));
    assert_eq!(sink(&right, "orders.x").ready().await, Ok(()));
}

/// An nkey that exists for this test only.
const NKEY: &str = "UAANAWQ5D2RFCOLNKV5PXVCYRM6G3GO35OLS73IQUMSWF2RG3TOPUNZ4";
const NKEY_SEED: &str = "SUAAOCAJBIFQYDIOB4IBCEQTCQKRMFYYDENBWHA5DYPSAIJCEMSCKJR2OM";

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_that_we_may_not_publish_on_is_the_operators_to_mend() {
    let users = "authorization { users: [ { user: \"admin\", password: \"a\" }, { user: \"relay\", password: \"canary\", \
                 permissions: { publish: { allow: [\"orders.>\", \"$JS.API.>\"] } } } ] }";
    let server = Nats::builder().line(users).start().await.expect("NATS");
    let mut config = config(server.port());
    (config.user, config.password) = (Some("relay".into()), Some(Secret::new("canary")));
    config.timeout = Duration::from_secs(120);
    let began = std::time::Instant::now();
    let refused = outcome(&*sink(&config, "secret.{topic}"), &message(1)).await;
    assert!(retries(&refused, "permissions"), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "it is known before the time is over");
}

/// Acknowledgements come to an inbox. An account that may not listen there would wait for all of them in vain.
#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_we_may_not_listen_to_is_named_before_the_time_is_over() {
    let users = "authorization { users: [ { user: \"relay\", password: \"canary\", \
                 permissions: { publish: [\">\"], subscribe: { deny: [\"_INBOX.>\"] } } } ] }";
    let server = Nats::builder().line(users).start().await.expect("NATS");
    let mut config = config(server.port());
    (config.user, config.password) = (Some("relay".into()), Some(Secret::new("canary")));
    (config.timeout, config.connect_timeout) = (Duration::from_secs(120), Duration::from_secs(6));
    let sink = sink(&config, "orders.x");
    for _ in 0..2 {
        let began = std::time::Instant::now();
        let unheard = outcome(&*sink, &message(1)).await;
        assert!(matches!(&unheard, Outcome::Unknown(why) if why.contains("_INBOX")), "{unheard:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "it is known before the time is over");
    }
    let why = sink.ready().await.expect_err("it cannot hear");
    assert!(why.contains("_INBOX"), "{why}");
}

/// A header without a name, and names that only look like ours, are read by another client as the reference says.
#[tokio::test(flavor = "multi_thread")]
async fn s05_strange_names_of_headers_are_neither_lost_nor_believed() {
    let server = Nats::start().await.expect("NATS");
    let context = stream(&server, |_| ()).await;
    let mut sent = message(1);
    let strange = ["", "CE-id", "EVENT_ID", "tenant_id", "nats-msg-id", "Status"];
    sent.headers.extend(strange.iter().map(|name| ((*name).to_owned(), "forged".to_owned())));
    sent.headers.insert("a b:c".into(), "kept".into());
    assert_eq!(outcome(&*sink(&config(server.port()), "orders.x"), &sent).await, Outcome::Accepted);
    let arrival = read(&context).await.remove(0);
    assert_eq!(arrival.id(), Some(sent.id));
    assert_eq!(arrival.headers["a%20b%3Ac"], "kept");
    for name in strange {
        assert_eq!(
            arrival.headers.get(&format!("postrider-header-{name}")).map(String::as_str),
            Some("forged"),
            "{name}"
        );
        assert!(arrival.headers.get(name).is_none_or(|value| value != "forged"), "{name}");
    }
}
