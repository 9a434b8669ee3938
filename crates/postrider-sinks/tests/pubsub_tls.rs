//! The sink pubsub with TLS and the key of a service account, as with the real service. Google's client trusts what the system
//! trusts, so each case is a process of its own with another `SSL_CERT_FILE`.
#![cfg(feature = "pubsub")]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Sink;
use postrider_sinks::setting::Secret;
use postrider_sinks::{PubsubConfig, PubsubSink};
use testkit::brokers::pubsub::{Client, Fake, PROJECT};
use testkit::sinks::message;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

fn authority() -> Authority {
    let mut params = rcgen::CertificateParams::new([]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority { pem, issuer: rcgen::Issuer::new(params, key) }
}

fn acceptor(authority: &Authority, name: &str) -> TlsAcceptor {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new([name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority.issuer).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate and its key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// The fake behind TLS; answers its port.
async fn encrypted(fake: Arc<Fake>, acceptor: TlsAcceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        loop {
            let Ok((connection, _)) = listener.accept().await else { continue };
            let (fake, acceptor) = (fake.clone(), acceptor.clone());
            tokio::spawn(async move {
                if let Ok(connection) = acceptor.accept(connection).await {
                    let _ = fake.serve(connection).await;
                }
            });
        }
    });
    port
}

/// Runs [`publishes_one_message`] in a process that trusts an authority, and answers what it printed.
async fn publish(endpoint: &str, authority: &Authority, key: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, &authority.pem).expect("written");
    let ended = Command::new(std::env::current_exe().expect("a program"))
        .args(["publishes_one_message", "--exact", "--nocapture"])
        .env("SSL_CERT_FILE", file)
        .env_remove("SSL_CERT_DIR")
        .env("POSTRIDER_TEST_ENDPOINT", endpoint)
        .env("POSTRIDER_TEST_KEY", key)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("it runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{text} {}", String::from_utf8_lossy(&ended.stderr));
    text
}

/// The part that runs in a process of its own; without its variables there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn publishes_one_message() {
    let Ok(endpoint) = std::env::var("POSTRIDER_TEST_ENDPOINT") else { return };
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false).finish();
    tracing::subscriber::set_global_default(log).expect("the only one");
    let mut config = PubsubConfig::default();
    config.project = PROJECT.into();
    config.endpoint = Some(endpoint);
    config.credentials = Some(Secret::new(std::env::var("POSTRIDER_TEST_KEY").expect("a key")));
    (config.timeout, config.connect_timeout) = (Duration::from_secs(60), Duration::from_secs(30));
    let sink = PubsubSink::connect(&config, "events".parse().expect("good")).expect("a sink");
    println!("published: {:?} ready: {:?}", sink.publish(&[message(1)]).await, sink.ready().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified_and_the_key_of_an_account_is_enough() {
    let fake = Arc::new(Fake::start().await.expect("a fake"));
    Client::new(fake.port()).expect("a client").create_topic("events").await.expect("a topic");
    let (ours, other) = (authority(), authority());
    let good = encrypted(fake.clone(), acceptor(&ours, "localhost")).await;
    let misnamed = encrypted(fake.clone(), acceptor(&ours, "pubsub.example")).await;
    let private = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("an RSA key").serialize_pem();
    let key = serde_json::json!({
        "type": "service_account", "project_id": PROJECT, "client_email": "relay@example.com", "private_key_id": "1",
        "private_key": &private,
    });
    let key = key.to_string();

    let text = publish(&format!("https://localhost:{good}"), &ours, &key).await;
    assert!(text.contains("TRACE"), "the log was listened to");
    let secret =
        |line: &&str| line.contains("eyJ") || private.lines().any(|part| part.len() > 20 && line.contains(part));
    assert_eq!(text.lines().find(secret), None, "tokens and keys are in no log");
    assert!(text.contains("published: [Accepted] ready: Ok(())"), "{text}");
    assert_eq!(fake.requests().len(), 1);
    for (endpoint, authority) in
        [(format!("https://localhost:{good}"), &other), (format!("https://localhost:{misnamed}"), &ours)]
    {
        let text = publish(&endpoint, authority, &key).await;
        assert!(text.contains("published: [Retry") && text.contains("nothing was sent"), "{text}");
        assert!(text.contains("ready: Err("), "{text}");
    }
    assert_eq!(fake.requests().len(), 1, "nobody who is not trusted gets a message");
}
