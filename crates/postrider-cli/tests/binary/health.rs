//! Health, readiness and metrics.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use testkit::{Mode, Postgres, Proxy, Signal, within};

use super::support::{PATIENCE, Receiver, Relay, Site, config, postrider};

async fn becomes(relay: &Relay, path: &str, status: u16) -> Result<Value> {
    let is = || async { relay.get(path).await.is_ok_and(|answer| answer.0 == status) };
    within(PATIENCE, &format!("{path} {status}"), is).await.with_context(|| relay.log())?;
    Ok(serde_json::from_str(&relay.get(path).await?.1)?)
}

#[tokio::test]
async fn s3_42_readiness_fails_when_the_database_or_a_sink_does_not_answer() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let server = Postgres::shared().await?;
    let database = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let free = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port()?));
    let url = site.url.replace(&format!(":{}/", server.port()), &format!(":{}/", database.port()));
    let mut relay =
        Relay::with_config(&site.file("postrider.toml", &config(&url, &format!("http://{free}"), ""))?).await?;

    let answer = becomes(&relay, "/readyz", 503).await?;
    assert_eq!(
        (&answer["sources"][0]["ready"], &answer["sinks"][0]["ready"]),
        (&true.into(), &false.into()),
        "{answer}"
    );
    assert_eq!(relay.get("/healthz").await?.0, 200, "the relay itself is well");
    let _receiver = Receiver::start_on(free).await?;
    becomes(&relay, "/readyz", 200).await?;

    database.set(Mode::Reset);
    let answer = becomes(&relay, "/readyz", 503).await?;
    assert_eq!(answer["sources"][0]["ready"], false);
    assert_eq!(answer["sinks"][0]["ready"], true, "{answer}");
    database.set(Mode::Pass);
    becomes(&relay, "/readyz", 200).await?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn t22_health_goes_red_when_there_is_no_progress_although_the_process_lives() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let server = Postgres::shared().await?;
    let database = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let url = site.url.replace(&format!(":{}/", server.port()), &format!(":{}/", database.port()));
    let receiver = Receiver::start().await?;
    let text =
        config(&url, &receiver.url, "lease = \"3s\"\npoll_interval = \"200ms\"") + "[admin]\nstalled_after = \"4s\"\n";
    let relay = Relay::with_config(&site.file("postrider.toml", &text)?).await?;
    becomes(&relay, "/healthz", 200).await?;
    database.set(Mode::Blackhole);
    let answer = becomes(&relay, "/healthz", 503).await?;
    let why = answer["sources"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains("the database answered last"), "{answer}");
    database.set(Mode::Pass);
    becomes(&relay, "/healthz", 200).await?;
    Ok(())
}

#[tokio::test]
async fn t22_health_goes_red_when_the_oldest_due_message_is_too_old() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(503, Duration::ZERO);
    let text = config(&site.url, &receiver.url, "") + "[admin]\noldest_due_limit = \"3s\"\n";
    let relay = Relay::with_config(&site.file("postrider.toml", &text)?).await?;
    let lines: String = (0..40).map(|n| format!("{n}\n")).collect();
    site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
    let answer = becomes(&relay, "/healthz", 503).await?;
    let why = answer["sources"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains("the oldest due message"), "{answer}");
    receiver.answer(200, Duration::ZERO);
    becomes(&relay, "/healthz", 200).await?;
    Ok(())
}

#[tokio::test]
async fn a_relay_starts_while_its_database_is_down_and_delivers_when_it_is_up() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let server = Postgres::shared().await?;
    let database = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    database.set(Mode::Reset);
    let url = site.url.replace(&format!(":{}/", server.port()), &format!(":{}/", database.port()));
    let receiver = Receiver::start().await?;
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let file = site.file("postrider.toml", &config(&url, &receiver.url, ""))?.display().to_string();
    let mut relay = Relay::spawn(&["--config", &file], &[])?;
    within(PATIENCE, "a word of it", || async { relay.log().contains("does not answer yet") }).await?;
    becomes(&relay, "/readyz", 503).await?;
    database.set(Mode::Pass);
    receiver.until(1).await.with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn s2_22_metrics_are_read_by_the_parser_of_the_prometheus_client() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let relay = Relay::with_config(&site.file("postrider.toml", &config(&site.url, &receiver.url, ""))?).await?;
    for _ in 0..5 {
        site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    }
    receiver.until(5).await?;
    let counted =
        || async { relay.get("/metrics").await.is_ok_and(|(_, text)| text.contains("outcome=\"accepted\"} 5")) };
    within(PATIENCE, "the count", counted).await?;
    let text = relay.get("/metrics").await?.1;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let environment = std::process::Command::new(format!("{root}/scripts/python-env")).output()?;
    anyhow::ensure!(environment.status.success(), "{environment:?}");
    let python = String::from_utf8(environment.stdout)?;
    let file = site.file("metrics", &text)?.display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/binary/metrics.py");
    let parsed = std::process::Command::new(python.trim()).args([script, &file]).output()?;
    anyhow::ensure!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let families: Value = serde_json::from_slice(&parsed.stdout)?;
    assert_eq!(families["postrider_published"]["accepted"], 5.0, "{families}");
    for family in [
        "postrider_due",
        "postrider_dead",
        "postrider_delivery_seconds",
        "postrider_build_info",
        "process_resident_memory_bytes",
    ] {
        assert!(families.get(family).is_some(), "{family}: {families}");
    }
    Ok(())
}

#[tokio::test]
async fn postrider_health_asks_the_endpoint() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let mut relay = Relay::with_config(&site.file("postrider.toml", &config(&site.url, &receiver.url, ""))?).await?;
    let address = relay.admin().await?;
    let directory = site.directory.path();
    let well = postrider(&["health", "--address", &address, "--ready"], &[], None, directory).await?.succeeded()?;
    assert_eq!(well.json()?["ready"], true);
    assert_eq!(relay.stop().await?, 0);
    let gone =
        postrider(&["health"], &[("POSTRIDER__ADMIN__LISTEN", &address)], None, directory).await?.failed_with(1)?;
    assert!(gone.err.contains("does not answer"), "{gone:?}");
    Ok(())
}

/// systemd's side: a socket that takes datagrams.
#[tokio::test]
async fn systemd_is_told_of_readiness_life_reload_and_stop() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let file = site.file("postrider.toml", &config(&site.url, &receiver.url, ""))?.display().to_string();
    let path = site.directory.path().join("notify");
    let socket = tokio::net::UnixDatagram::bind(&path)?;
    let heard = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let notes = heard.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 4_096];
        while let Ok(length) = socket.recv(&mut buffer).await {
            notes.lock().expect("notes").push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
    let path = path.display().to_string();
    let variables = [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "300000")];
    let mut relay = Relay::spawn(&["--config", &file], &variables)?;
    let hears = |word: &'static str| {
        let heard = heard.clone();
        async move { within(PATIENCE, word, || async { heard.lock().is_ok_and(|heard| heard.contains(word)) }).await }
    };
    hears("READY=1").await?;
    hears("WATCHDOG=1").await?;
    relay.signal(Signal::SIGHUP)?;
    hears("RELOADING=1").await?;
    relay.signal(Signal::SIGTERM)?;
    hears("STOPPING=1").await?;
    assert_eq!(relay.ended(PATIENCE).await?, 0);
    Ok(())
}

/// Traces go to a collector: spans of publishes, children of the producer's.
#[tokio::test]
async fn traces_are_sent_when_a_collector_is_named() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let (receiver, collector) = (Receiver::start().await?, Receiver::start().await?);
    let text =
        config(&site.url, &receiver.url, "") + &format!("[trace]\notlp_endpoint = \"{}/v1/traces\"\n", collector.url);
    let mut relay = Relay::with_config(&site.file("postrider.toml", &text)?).await?;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("traceparent=00-{trace}-00f067aa0ba902b7-01");
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "-H", &parent, "1"]).await?.succeeded()?;
    let arrivals = receiver.until(1).await?;
    assert!(arrivals[0].header("traceparent").contains(trace), "{arrivals:?}");
    assert_eq!(relay.stop().await?, 0);
    let sent = collector.arrivals().clone();
    let bytes: Vec<u8> =
        (0..trace.len()).step_by(2).map(|at| u8::from_str_radix(&trace[at..at + 2], 16).expect("hex")).collect();
    let with_trace = sent.iter().filter(|arrival| arrival.path == "/v1/traces");
    let found = with_trace.clone().any(|arrival| arrival.body.windows(16).any(|window| window == bytes));
    assert!(found, "{} exports, none with the producer's trace", with_trace.count());
    Ok(())
}
