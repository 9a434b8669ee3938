//! S06: no connection leaves for an address that is not allowed, whatever leads to it.

mod support;

use std::time::Duration;

use postrider_core::{Outcome, Sink};
use postrider_sinks::http::SystemLookup;
use postrider_sinks::{ConfigProblem, HttpClient, HttpConfig};
use support::{Names, Server, destination, json, message, status, with_headers};

/// Nothing is allowed, and plain HTTP may go everywhere: what is refused then is refused for its address.
fn open() -> HttpConfig {
    let mut config = HttpConfig::default();
    config.allow_plain_http = true;
    config.connect_timeout = Duration::from_millis(500);
    config.timeout = Duration::from_secs(1);
    config.breaker_failures = 1_000;
    config
}

/// What a message comes to, or why its destination was refused.
async fn publish(client: &HttpClient, url: &str) -> Result<Outcome, ConfigProblem> {
    let sink = client.sink(destination(url))?;
    let ready = sink.ready().await;
    let outcome = sink.publish(&[message("n", "t", json("1"))]).await.remove(0);
    assert_eq!(ready.is_ok(), outcome == Outcome::Accepted, "{url}: {ready:?} {outcome:?}");
    Ok(outcome)
}

#[tokio::test]
async fn s06_literal_and_encoded_addresses_are_refused_without_a_connection() {
    let four = Server::start_at("0.0.0.0:0", None, |_| status(200)).await;
    let port = four.address.port();
    let six = Server::start_at(&format!("[::1]:{port}"), None, |_| status(200)).await;
    let client = HttpClient::new(&open()).expect("a client");
    let hosts = [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.01",
        "0x7f.0.0.1",
        "0x7f.1",
        "127.0x0.0.1",
        "00000177.1",
        "0",
        "0.0.0.0",
        "0x0",
        "0.0.0.0.",
        "1.2.3.4.5",
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "100.100.100.200",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[fe80::1]",
        "[fe80::1%25lo]",
        "[fe80::1%lo]",
        "[fec0::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[100::1]",
        "１２７.０.０.１",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "127.0.0.1%00.example.com",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
        "localhost",
        "LOCALHOST",
        "LocalHost.",
    ];
    assert!(hosts.len() >= 40);
    for host in hosts {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/hooks/{{topic}}");
            let why = match publish(&client, &url).await {
                Err(problem) => problem.to_string(),
                Ok(Outcome::Retry { why, .. }) => why,
                Ok(other) => panic!("{url}: {other:?}"),
            };
            assert!(!why.contains("127.") && !why.contains("169.254") && !why.contains("::"), "{url}: {why}");
        }
    }
    assert_eq!((four.accepts(), six.accepts()), (0, 0), "a connection was made");
    // The same address when it is allowed, so that the zero above means something.
    let mut allowed = open();
    allowed.allow_addresses = vec!["127.0.0.0/8".into(), "::1".into()];
    let client = HttpClient::new(&allowed).expect("a client");
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"] {
        let outcome = publish(&client, &format!("http://{host}:{port}/")).await;
        assert_eq!(outcome, Ok(Outcome::Accepted), "{host}");
    }
}

#[tokio::test]
async fn s06_names_that_lead_inside_are_refused_at_every_connection() {
    let server = Server::start(|_| status(200)).await;
    let port = server.address.port();
    let names = Names::new(&[
        ("inside.example", &[&["127.0.0.1"]]),
        ("both.example", &[&["8.8.8.8", "127.0.0.1"]]),
        ("mapped.example", &[&["::ffff:127.0.0.1"]]),
        ("nat64.example", &[&["64:ff9b::7f00:1"]]),
        ("metadata.example", &[&["169.254.169.254"]]),
        ("nothing.example", &[&[]]),
    ]);
    let client = HttpClient::with_lookup("http", &open(), names).expect("a client");
    for host in ["inside", "both", "mapped", "nat64", "metadata", "nothing"] {
        let outcome = publish(&client, &format!("http://{host}.example:{port}/")).await.expect("a name is no literal");
        let Outcome::Retry { why, .. } = outcome else { panic!("{host}: {outcome:?}") };
        let reason = if host == "nothing" { "no address" } else { "not public" };
        assert!(why.contains("nothing was sent") && why.contains(reason), "{host}: {why}");
        assert!(!why.contains("127.0") && !why.contains("169.254"), "{host}: {why}");
    }
    assert_eq!(server.accepts(), 0, "a connection was made");
}

/// The name is harmless when it is looked up first and leads inside the next time, as with a TTL of zero. "Public" is an
/// address of this machine that the configuration allows.
#[tokio::test]
async fn s06_a_name_that_changes_its_mind_gains_nothing() {
    let close =
        |_: &_| support::Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec());
    let harmless = Server::start_at("127.0.0.2:0", None, close).await;
    let port = harmless.address.port();
    let inside = Server::start_at(&format!("127.0.0.1:{port}"), None, |_| status(200)).await;
    let mut config = open();
    config.allow_addresses = vec!["127.0.0.2".into()];
    let names = Names::new(&[(
        "turns.example",
        &[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.2", "127.0.0.1"], &["127.0.0.2"]],
    )]);
    let client = HttpClient::with_lookup("http", &config, names.clone()).expect("a client");
    let sink = client.sink(destination(&format!("http://turns.example:{port}/"))).expect("a sink");
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(sink.publish(&[message("n", "t", json("1"))]).await.remove(0).kind());
    }
    assert_eq!(kinds, ["accepted", "retry", "retry", "accepted"]);
    assert_eq!(
        names.asked.load(std::sync::atomic::Ordering::Relaxed),
        4,
        "one look-up per connection, and no second one"
    );
    assert_eq!((harmless.accepts(), inside.accepts()), (2, 0));
}

#[tokio::test]
async fn s06_redirects_are_not_followed() {
    let inside = Server::start_at("127.0.0.2:0", None, |_| status(200)).await;
    let location = format!("location: http://{}/secret\r\n", inside.address);
    let server = Server::start(move |_| with_headers(307, &location)).await;
    let mut config = open();
    config.allow_addresses = vec!["127.0.0.0/8".into()];
    let client = HttpClient::new(&config).expect("a client");
    let sink = client.sink(destination(&server.url("/"))).expect("a sink");
    assert_eq!(sink.publish(&[message("n", "t", json("1"))]).await.remove(0).kind(), "retry");
    assert_eq!(inside.accepts(), 0);
}

#[tokio::test]
async fn s06_plain_http_is_for_allowed_addresses_only() {
    let mut config = open();
    config.allow_plain_http = false;
    let names = Names::new(&[("public.example", &[&["8.8.8.8"]])]);
    let client = HttpClient::with_lookup("http", &config, names).expect("a client");
    let problem = publish(&client, "http://8.8.8.8/").await.expect_err("it is plain");
    assert!(problem.to_string().contains("use https://"), "{problem}");
    let outcome = publish(&client, "http://public.example/").await.expect("a name is no literal");
    assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("use https://")), "{outcome:?}");
}

/// Environment variables are the process's, so this runs itself again with them set.
#[tokio::test]
async fn s06_proxies_of_the_environment_are_not_used() {
    const CHILD: &str = "POSTRIDER_TEST_PROXY_CHILD";
    if let Ok(url) = std::env::var(CHILD) {
        let mut config = open();
        config.allow_addresses = vec!["127.0.0.1".into()];
        let client = HttpClient::with_lookup("http", &config, SystemLookup).expect("a client");
        assert_eq!(publish(&client, &url).await, Ok(Outcome::Accepted));
        return;
    }
    let proxy = Server::start(|_| status(500)).await;
    let server = Server::start(|_| status(200)).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "s06_proxies_of_the_environment_are_not_used"]).env(CHILD, server.url("/"));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, format!("http://{}", proxy.address));
    }
    let ended = child.env_remove("no_proxy").env_remove("NO_PROXY").output().await.expect("it ran");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!((proxy.accepts(), server.take().len()), (0, 1));
}
