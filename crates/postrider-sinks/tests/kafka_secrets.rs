//! Identities over the wire, and S16, S17: passwords and payloads are in no log, error, outcome or debug output. One test after
//! another, because they look at the whole process.
#![cfg(feature = "kafka")]

mod kafka_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kafka_support::{PATIENCE, Scene, config, impatient, kinds, messages, sink};
use postrider_core::{Outcome, Payload};
use postrider_sinks::kafka::{KafkaClient, KafkaConfig, Protocol, SaslMechanism};
use postrider_sinks::setting::Secret;
use postrider_sinks::{Format, SinkConfig};
use testkit::brokers::kafka::{Credentials, Relay};
use testkit::eventually;
use testkit::log::Log;
use testkit::sinks::of_payload;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new([]).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate with the name of its issuer for signed by itself.
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new([name.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a server");
        TlsAcceptor::from(Arc::new(server))
    }
}

/// Takes TLS off the connections to a port, and sends them through a relay that tells clients that port.
struct Front {
    port: u16,
    _relay: Relay,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    async fn start(broker: SocketAddr, tls: TlsAcceptor, credentials: Option<Credentials>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let relay = Relay::before(broker, Some(port), credentials).await.expect("a relay");
        let upstream = relay.port();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let (Ok(mut client), Ok(mut relay)) =
                        (tls.accept(client).await, TcpStream::connect(("127.0.0.1", upstream)).await)
                    else {
                        return;
                    };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut relay).await;
                });
            }
        });
        Self { port, _relay: relay, task }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many threads have names that begin so.
fn threads(names: &[&str]) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let tasks = tasks.filter_map(Result::ok).map(name);
    tasks.filter(|name| names.iter().any(|begin| name.starts_with(begin))).count()
}

/// Those that call for reports, and those that close producers.
const OURS: [&str; 2] = ["producer poll", "kafka-close"];
/// Those of librdkafka, also of the mock cluster and its consumer.
const LIBRARY: [&str; 1] = ["rdk:"];

fn user(config: &mut KafkaConfig, protocol: Protocol, password: &str) {
    config.protocol = protocol;
    config.sasl_mechanism = SaslMechanism::Plain;
    config.username = Some("postrider".into());
    config.password = Some(Secret::new(password));
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_are_checked_and_nothing_secret_is_seen() {
    let log = Log::listen();

    let scene = Scene::new(1).await;
    if scene.kafka.is_real() {
        println!("left out: a real broker has its own identities");
        return;
    }
    let broker: SocketAddr = scene.kafka.direct().parse().expect("an address");
    let mut seen = Vec::new();
    tls(&scene, broker).await;
    passwords(&scene, broker, &mut seen).await;
    options(&scene, &mut seen);
    trouble(&scene, &mut seen).await;
    seen.push(log.text());
    let all = seen.join("\n");
    assert!(all.contains("kafka-test") && all.contains("librdkafka: "), "there is a log");
    for line in all.lines() {
        assert!(!line.contains("canary"), "{line}");
    }
    threads_end(&scene).await;
}

async fn tls(scene: &Scene, broker: SocketAddr) {
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, authority: &Authority| {
        let path = directory.path().join(name);
        std::fs::write(&path, authority.certificate.pem()).expect("written");
        path
    };
    let (right, wrong) = (file("right.pem", &authority), file("wrong.pem", &other));
    let named = Front::start(broker, authority.acceptor("127.0.0.1"), None).await;
    let elsewhere = Front::start(broker, authority.acceptor("kafka.example"), None).await;
    for (front, ca, expected) in [
        (&named, Some(&right), true),
        (&named, Some(&wrong), false),
        (&named, None, false),
        (&elsewhere, Some(&right), false),
    ] {
        let mut config = impatient(config(&format!("127.0.0.1:{}", front.port)));
        config.protocol = Protocol::Ssl;
        config.tls.ca_file = ca.cloned();
        let sink = sink(&config, &scene.topic, Format::Plain);
        let sent = messages(1);
        let outcomes = sink.publish(&sent).await;
        assert_eq!(kinds(&outcomes), [if expected { "accepted" } else { "retry" }], "{outcomes:?}");
        match expected {
            true => drop(scene.arrived(&sent).await),
            false => assert!(sink.ready().await.expect_err("not trusted").contains("SSL"), "{outcomes:?}"),
        }
    }
    let mut config = impatient(config("127.0.0.1:9"));
    config.protocol = Protocol::Ssl;
    config.tls.ca_file = Some(directory.path().join("none.pem"));
    assert_eq!(KafkaClient::new(&config).expect_err("no file").field, "tls.ca_file");
    std::fs::write(directory.path().join("none.pem"), "no certificate").expect("written");
    assert_eq!(KafkaClient::new(&config).expect_err("no certificate").field, "tls");
}

async fn passwords(scene: &Scene, broker: SocketAddr, seen: &mut Vec<String>) {
    let wanted = Credentials { username: "postrider".into(), password: "canary-right".into() };
    let relay = Relay::before(broker, None, Some(wanted)).await.expect("a relay");
    for (password, expected) in [("canary-right", "accepted"), ("canary-wrong", "retry")] {
        let mut config = impatient(config(&format!("127.0.0.1:{}", relay.port())));
        user(&mut config, Protocol::SaslPlaintext, password);
        let client = KafkaClient::named("kafka-test", &config).expect("a client");
        let sink = client.sink(scene.topic.parse().expect("a destination")).expect("a sink");
        let outcomes = postrider_core::Sink::publish(&sink, &messages(1)).await;
        assert_eq!(kinds(&outcomes), [expected], "{outcomes:?}");
        let ready = postrider_core::Sink::ready(&sink).await;
        assert_eq!(ready.is_ok(), expected == "accepted", "{ready:?}");
        if let Err(why) = &ready {
            assert!(why.contains("Authentication"), "{why}");
        }
        let shown = serde_json::to_string(&config).expect("it can be shown");
        seen.push(format!("{config:?} {shown} {client:?} {sink:?} {outcomes:?} {ready:?}"));
    }
}

fn options(scene: &Scene, seen: &mut Vec<String>) {
    for (name, value) in [("no.such.property", "canary"), ("batch.size", "canary")] {
        let mut config = scene.impatient();
        config.options = [(name.to_owned(), value.to_owned())].into();
        let problem = KafkaClient::new(&config).expect_err("librdkafka does not take it");
        assert_eq!(problem.field, format!("options.{name}"));
        seen.push(problem.to_string());
    }
    let mut config = scene.impatient();
    config.options = [("sasl.password".to_owned(), "canary".to_owned())].into();
    seen.push(format!("{:?}", config.problems()));
}

async fn trouble(scene: &Scene, seen: &mut Vec<String>) {
    let sink = sink(&scene.impatient(), &scene.topic, Format::Plain);
    let mut message = of_payload(Payload::Json(r#""canary-payload""#.into()));
    message.headers.insert("colour".into(), "canary-header".into());
    message.key = Some("canary-key".into());
    assert_eq!(sink.publish(std::slice::from_ref(&message)).await, [Outcome::Accepted]);
    scene.kafka.stop().expect("it stops");
    seen.push(format!("{:?} {:?}", sink.publish(std::slice::from_ref(&message)).await, sink.ready().await));
    scene.kafka.restart().expect("it starts");
    message.payload = Payload::Bytes(b"canary".repeat(300_000));
    seen.push(format!("{:?}", sink.publish(&[message]).await));
    eventually(PATIENCE, || async { sink.publish(&messages(1)).await == [Outcome::Accepted] }).await;
}

async fn threads_end(scene: &Scene) {
    // A producer is closed once the thread that closes it has ended.
    eventually(PATIENCE, || async { threads(&OURS) == 0 }).await;
    let before = threads(&LIBRARY);
    let sink = sink(&scene.impatient(), &scene.topic, Format::Plain);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    assert!(threads(&LIBRARY) > before && threads(&OURS) > 0);
    scene.kafka.silence().expect("it is silent");
    let cut = tokio::time::timeout(Duration::from_millis(50), sink.publish(&messages(10))).await;
    assert!(cut.is_err(), "messages are outstanding");
    drop(sink);
    eventually(Duration::from_secs(120), || async { threads(&OURS) == 0 && threads(&LIBRARY) <= before }).await;
}
