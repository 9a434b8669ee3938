//! R57: what answers, and their absence, mean for a message.

mod support;

use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use postrider_core::{Outcome, Sink};
use postrider_sinks::{HttpClient, HttpConfig};
use support::{Names, Received, Reply, Server, destination, json, local, message, sink, status, with_headers};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Longer than a machine stands still.
const PATIENT: Duration = Duration::from_secs(60);

/// For what never answers.
const IMPATIENT: Duration = Duration::from_secs(6);

/// Long times for answers, and a breaker that stays out of the way.
fn config() -> HttpConfig {
    let mut config = local();
    config.connect_timeout = PATIENT;
    config.timeout = PATIENT;
    config.breaker_failures = 1_000;
    config
}

fn behave(request: &Received) -> Reply {
    let endless = |head: &str, more: &[u8]| Reply::Endless(head.as_bytes().to_vec(), more.to_vec());
    let path = request.path.trim_start_matches('/');
    let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
    match kind {
        "status" => status(rest.parse().expect("a status")),
        "seconds" => with_headers(429, "retry-after: 7\r\n"),
        "unavailable" => with_headers(503, "retry-after: 9\r\n"),
        "negative" => with_headers(429, "retry-after: -7\r\n"),
        "absurd" => with_headers(429, "retry-after: 999999999999999999999999\r\n"),
        "nonsense" => with_headers(503, "retry-after: when the moon is blue\r\n"),
        "past" => with_headers(429, "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        "date" => {
            let then = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
            with_headers(429, &format!("retry-after: {then}\r\n"))
        }
        "redirect" => with_headers(302, "location: http://169.254.169.254/latest/meta-data\r\n"),
        "reset-before" => Reply::Reset(Vec::new()),
        "reset-head" => Reply::Reset(b"HTTP/1.1 200 O".to_vec()),
        "reset-body" => Reply::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec()),
        "reset-body-500" => Reply::Reset(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nhalf".to_vec()),
        "close" => Reply::Close(Vec::new()),
        "garbage" => Reply::Close(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
        "silence" => Reply::Silence,
        "slow-head" => {
            Reply::Drip(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(), Duration::from_millis(500))
        }
        "slow-body" => Reply::Drip(
            b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n".iter().copied().chain([b'x'; 900]).collect(),
            Duration::from_millis(100),
        ),
        "endless-body" => endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 16_384]),
        "endless-chunks" => endless("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"),
        "endless-head" => endless("HTTP/1.1 200 OK\r\n", b"x-more: and more and more and more and more\r\n"),
        "endless-line" => endless("HTTP/1.1 200 OK\r\nx: ", &[b'x'; 16_384]),
        "endless-informational" => endless("", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"),
        "gzip-bomb" => Reply::Close(BOMB.clone()),
        "wrong-length" => Reply::Close(b"HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\n".to_vec()),
        other => panic!("{other}"),
    }
}

/// Made before it is asked for: compressing takes longer than the client waits.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(gzip_bomb);

/// Sixteen megabytes in sixteen kilobytes.
fn gzip_bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    (0..256).for_each(|_| encoder.write_all(&[0; 65_536]).expect("compressed"));
    let bomb = encoder.finish().expect("compressed");
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    [head.into_bytes(), bomb].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_the_table_of_outcomes_holds() {
    LazyLock::force(&BOMB);
    let server = Server::start(behave).await;
    let patient = HttpClient::new(&config()).expect("a client");
    let mut soon = config();
    (soon.connect_timeout, soon.timeout) = (IMPATIENT, IMPATIENT);
    let impatient = HttpClient::new(&soon).expect("a client");
    let table: &[(&str, &str, Option<u64>)] = &[
        ("status/200", "accepted", None),
        ("status/201", "accepted", None),
        ("status/202", "accepted", None),
        ("status/204", "accepted", None),
        ("status/300", "retry", None),
        ("status/301", "retry", None),
        ("redirect", "retry", None),
        ("status/304", "retry", None),
        ("status/307", "retry", None),
        ("status/308", "retry", None),
        ("status/400", "reject", None),
        ("status/401", "retry", None),
        ("status/403", "retry", None),
        ("status/404", "retry", None),
        ("status/405", "retry", None),
        ("status/408", "retry", None),
        ("status/409", "retry", None),
        ("status/410", "reject", None),
        ("status/413", "reject", None),
        ("status/414", "reject", None),
        ("status/415", "reject", None),
        ("status/418", "retry", None),
        ("status/422", "reject", None),
        ("status/425", "retry", None),
        ("status/429", "retry", None),
        ("status/431", "reject", None),
        ("seconds", "retry", Some(7)),
        ("date", "retry", Some(59)),
        ("absurd", "retry", Some(86_400)),
        ("negative", "retry", None),
        ("nonsense", "retry", None),
        ("past", "retry", None),
        ("unavailable", "retry", Some(9)),
        ("status/500", "retry", None),
        ("status/501", "retry", None),
        ("status/502", "retry", None),
        ("status/503", "retry", None),
        ("status/504", "retry", None),
        ("status/599", "retry", None),
        ("reset-before", "unknown", None),
        ("reset-head", "unknown", None),
        ("reset-body", "accepted", None),
        ("reset-body-500", "retry", None),
        ("close", "unknown", None),
        ("garbage", "unknown", None),
        ("silence", "unknown", None),
        ("slow-head", "unknown", None),
        ("slow-body", "accepted", None),
        ("endless-body", "accepted", None),
        ("endless-chunks", "retry", None),
        ("endless-head", "unknown", None),
        ("endless-line", "unknown", None),
        ("endless-informational", "unknown", None),
        ("gzip-bomb", "accepted", None),
        ("wrong-length", "accepted", None),
    ];
    let check = async |client: &HttpClient, (path, expected, after): (&str, &str, Option<u64>)| {
        let sink = client.sink(destination(&server.url(&format!("/{path}")))).expect("a sink");
        let began = Instant::now();
        let outcome = sink.publish(&[message("shop", "order", json("{}"))]).await.remove(0);
        assert_eq!(outcome.kind(), expected, "{path}: {outcome:?}");
        assert!(began.elapsed() < PATIENT / 2, "{path} took {:?}, which is not to wait for", began.elapsed());
        if let Outcome::Retry { after: given, why } = &outcome {
            // A date has whole seconds, and some of them may be gone when it is read.
            let close =
                |given: u64, wanted: u64| given == wanted || (path == "date" && (wanted - 30..wanted).contains(&given));
            let fits =
                given.map(|given| given.as_secs()).zip(after).is_some_and(|(given, wanted)| close(given, wanted));
            assert!(fits || (given.is_none() && after.is_none()), "{path}: {given:?}");
            assert!(!why.contains("Whatever"), "the receiver's words are not passed on: {why}");
        }
    };
    let never_ends = |path: &str| ["silence", "slow-head", "endless-informational"].contains(&path);
    let (waiting, answered): (Vec<_>, Vec<_>) = table.iter().partition(|(path, ..)| never_ends(path));
    for row in answered {
        check(&patient, row).await;
    }
    futures::future::join_all(waiting.into_iter().map(|row| check(&impatient, row))).await;
    let received = server.take();
    assert_eq!(received.len(), table.len(), "nothing is tried twice within one attempt");
    assert!(received.iter().all(|request| !request.headers.contains_key("accept-encoding")), "nothing is unpacked");
}

#[tokio::test]
async fn r57_nothing_was_sent_if_there_was_no_connection() {
    let free = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")));
    let sink = sink(&config(), &format!("http://{free}/"));
    let outcome = sink.publish(&[message("n", "t", json("1"))]).await.remove(0);
    assert!(
        matches!(&outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent: no connection")),
        "{outcome:?}"
    );
    assert!(sink.ready().await.expect_err("nobody is there").contains("no connection"));

    let nowhere = HttpClient::with_lookup("http", &config(), Names::new(&[])).expect("a client");
    let sink = nowhere.sink(destination("https://nowhere.example/")).expect("a sink");
    let outcome = sink.publish(&[message("n", "t", json("1"))]).await.remove(0);
    assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("cannot be looked up")), "{outcome:?}");
    assert!(sink.ready().await.is_err());
}

#[tokio::test]
async fn a_listening_destination_is_ready() {
    let server = Server::start(|_| status(200)).await;
    assert_eq!(sink(&config(), &server.url("/x")).ready().await, Ok(()));
    assert_eq!(server.take().len(), 0, "being asked is no request");
}

struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

fn authority() -> Authority {
    let mut params = rcgen::CertificateParams::new([]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    Authority { certificate, issuer: rcgen::Issuer::new(params, key) }
}

fn acceptor(authority: &Authority, name: &str, expired: bool) -> TlsAcceptor {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("parameters");
    if expired {
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
    }
    let certificate = params.signed_by(&key, &authority.issuer).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn r57_tls_is_verified() {
    let authority = authority();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(authority.certificate.pem().as_bytes()).expect("written");
    let names = Names::new(&[("hooks.example", &[&["127.0.0.1"]]), ("other.example", &[&["127.0.0.1"]])]);
    let good =
        Server::start_at("127.0.0.1:0", Some(acceptor(&authority, "hooks.example", false)), |_| status(200)).await;
    let old = Server::start_at("127.0.0.1:0", Some(acceptor(&authority, "hooks.example", true)), |_| status(200)).await;
    let plain = Server::start(|_| status(200)).await;
    let mut trusting = config();
    trusting.ca_file = Some(file.path().to_owned());
    // Who does not know TLS does not answer.
    trusting.connect_timeout = IMPATIENT;
    let publish = async |config: &HttpConfig, host: &str, server: &Server| {
        let client = HttpClient::with_lookup("http", config, names.clone()).expect("a client");
        let sink = client.sink(destination(&format!("https://{host}:{}/", server.address.port()))).expect("a sink");
        sink.publish(&[message("n", "t", json("1"))]).await.remove(0)
    };
    assert_eq!(publish(&trusting, "hooks.example", &good).await, Outcome::Accepted);
    for (what, outcome) in [
        ("wrong name", publish(&trusting, "other.example", &good).await),
        ("unknown issuer", publish(&config(), "hooks.example", &good).await),
        ("expired", publish(&trusting, "hooks.example", &old).await),
    ] {
        assert!(
            matches!(&outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent: TLS")),
            "{what}: {outcome:?}"
        );
    }
    let outcome = publish(&trusting, "hooks.example", &plain).await;
    assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent")), "no TLS: {outcome:?}");
    assert_eq!((good.take().len(), old.take().len(), plain.take().len()), (1, 0, 0));
}

#[test]
fn a_ca_file_is_read_or_named() {
    let mut config = config();
    config.ca_file = Some("/nowhere/ca.pem".into());
    assert_eq!(HttpClient::new(&config).expect_err("no file").field, "ca_file");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"not a certificate").expect("written");
    config.ca_file = Some(file.path().to_owned());
    assert_eq!(HttpClient::new(&config).expect_err("no certificate").field, "ca_file");
}
