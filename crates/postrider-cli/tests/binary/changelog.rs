//! The changelog in the binary: routes that keep the order, pages and streams over HTTP, and the operator's commands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use postrider::{AnyStore, Connect, Names};
use postrider_changelog::{Change, Changelog, Operation, Value as Cell};
use serde_json::{Value, json};
use testkit::{Mode, Postgres, Proxy, Signal, within};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::support::{Arrival, PATIENCE, Receiver, Relay, Site};

async fn write(site: &Site, numbers: Range<usize>) -> Result<()> {
    write_at(&site.url, numbers).await
}

/// Commits entries with the numbers of a range, one after the other.
pub async fn write_at(url: &str, numbers: Range<usize>) -> Result<()> {
    match AnyStore::connect(url, &Connect::default()).await? {
        AnyStore::Postgres(store) => write_to(store.pool(), numbers).await,
        AnyStore::MySql(store) => write_to(store.pool(), numbers).await,
        AnyStore::Sqlite(store) => write_to(store.pool(), numbers).await,
    }
}

async fn write_to<DB: postrider_changelog::Database>(pool: &sqlx::Pool<DB>, numbers: Range<usize>) -> Result<()> {
    let changelog = Changelog::new(pool.clone(), Names::default()).enabled(true);
    for number in numbers {
        let mut transaction = pool.begin().await?;
        let reservation = changelog.reserve(&mut transaction).await?;
        let values = BTreeMap::from([("secret".to_owned(), Cell::Text(format!("canary {number}")))]);
        let change = Change {
            namespace: "shop".into(),
            table: "orders".into(),
            external_id: format!("order-{number}"),
            operation: Operation::Create { values },
        };
        changelog.append(&mut transaction, reservation, &format!("uow-{number}"), vec![change]).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// A relay's configuration with one changelog route to a receiver.
fn config(site: &Site, receiver: &str) -> String {
    config_of(&site.url, receiver)
}

pub fn config_of(url: &str, receiver: &str) -> String {
    format!(
        r#"
[admin]
oldest_due_limit = "2s"

[source.shop]
url = "{url}"
retry_base = "50ms"
retry_max = "200ms"

[source.shop.changelog]
enabled = true
serve = true
poll_interval = "50ms"
lease = "2s"

[sink.hooks]
type = "http"
allow_addresses = ["127.0.0.0/8"]

[[route]]
changelog = true
name = "trail"
source = "shop"
sink = "hooks"
format = "plain"
destination = "{receiver}/changes"
"#
    )
}

async fn start(site: &Site, text: &str) -> Result<Relay> {
    let file = site.file("postrider.toml", text)?.display().to_string();
    Relay::spawn(&["--config", &file], &[])
}

/// Which entry a webhook brought.
fn number(arrival: &Arrival) -> Result<usize> {
    let entry: Value = serde_json::from_slice(&arrival.body).context("no JSON")?;
    let id = entry["uowId"].as_str().context("no id")?;
    Ok(id.strip_prefix("uow-").context("not ours")?.parse()?)
}

fn numbers(receiver: &Receiver) -> Result<Vec<usize>> {
    receiver.arrivals().iter().map(number).collect()
}

async fn metric(relay: &Relay, name: &str) -> Result<String> {
    let text = relay.get("/metrics").await?.1;
    let line = text.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
    Ok(line.rsplit(' ').next().unwrap_or_default().to_owned())
}

async fn consumer(site: &Site) -> Result<Value> {
    let ran = site.postrider(&["changelog", "consumers", "--json"]).await?.succeeded()?;
    ran.json_lines()?.into_iter().find(|line| line["name"] == "route/trail").context("no such consumer")
}

async fn shows(relay: &Relay, name: &str, value: &str) -> Result<()> {
    let is = || async { metric(relay, name).await.is_ok_and(|shown| shown == value) };
    within(PATIENCE, &format!("{name} {value}"), is).await.with_context(|| relay.log())
}

async fn arrive(receiver: &Receiver, relay: &Relay, count: usize) -> Result<()> {
    receiver.until(count).await.with_context(|| relay.log()).map(drop)
}

const HELD_BACK: &str = "postrider_changelog_held_back{source=\"shop\",route=\"trail\"}";
const BEHIND: &str = "postrider_changelog_behind{source=\"shop\",route=\"trail\"}";

#[tokio::test]
async fn entries_arrive_in_the_order_of_commits_and_each_once() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..30).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        arrive(&receiver, &relay, 30).await?;
        write(&site, 30..150).await?;
        arrive(&receiver, &relay, 150).await?;
        assert_eq!(relay.stop().await?, 0, "{}", relay.log());
        assert_eq!(numbers(&receiver)?, (0..150).collect::<Vec<_>>());

        let arrival = receiver.arrivals()[7].clone();
        let entry: Value = serde_json::from_slice(&arrival.body)?;
        let listed = site.postrider(&["changelog", "list", "--json"]).await?.succeeded()?.json_lines()?;
        assert_eq!(listed[7]["entry"], entry, "it is what the command lists");
        assert!(arrival.headers.values().any(|value| entry["id"] == **value), "{arrival:?}");
        assert_eq!(arrival.path, "/changes");
        let consumer = consumer(&site).await?;
        assert_eq!((&consumer["behind"], &consumer["held_by"]), (&json!(0), &json!(null)), "the lease is given back");
        assert!(!relay.log().contains("canary"), "{}", relay.log());

        // Where it stopped it goes on.
        write(&site, 150..152).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        arrive(&receiver, &relay, 152).await?;
        assert_eq!(relay.stop().await?, 0);
        assert_eq!(numbers(&receiver)?, (0..152).collect::<Vec<_>>());
    }
    Ok(())
}

#[tokio::test]
async fn an_entry_that_fails_holds_its_route_back_visibly_and_goes_on_when_the_sink_recovers() -> Result<()> {
    for (site, status) in [(Site::postgres().await?, 400), (Site::sqlite().await?, 503)] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..2).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        arrive(&receiver, &relay, 2).await?;
        receiver.answer(status, Duration::ZERO);
        write(&site, 2..7).await?;
        arrive(&receiver, &relay, 6).await?;
        shows(&relay, HELD_BACK, "1").await?;
        shows(&relay, BEHIND, "5").await?;
        let held = consumer(&site).await?;
        assert_eq!(held["behind"], 5, "{held}");
        assert!(held["last_error"].as_str().is_some_and(|why| why.contains(&status.to_string())), "{held}");
        assert!(held["held_back_since"].is_string() && held["held_by"].is_string(), "{held}");
        let red = || async { relay.get("/healthz").await.is_ok_and(|answer| answer.0 == 503) };
        within(PATIENCE, "red", red).await?;
        let health: Value = serde_json::from_str(&relay.get("/healthz").await?.1)?;
        let route = &health["sources"][0]["changelog"][0];
        assert_eq!((&route["route"], &route["works"]), (&json!("trail"), &json!(true)), "{health}");
        assert!(["reject", "retry", "busy"].contains(&route["held_back"].as_str().unwrap_or_default()), "{health}");
        assert!(health["sources"][0]["why"].as_str().is_some_and(|why| why.contains("trail")), "{health}");
        let table = site.postrider(&["changelog", "consumers"]).await?.succeeded()?;
        assert!(table.out.contains("route/trail") && table.out.contains("for "), "{table:?}");

        receiver.answer(200, Duration::ZERO);
        let all = || async { numbers(&receiver).is_ok_and(|numbers| numbers.contains(&6)) };
        within(PATIENCE, "the rest", all).await.with_context(|| relay.log())?;
        shows(&relay, HELD_BACK, "0").await?;
        shows(&relay, BEHIND, "0").await?;
        let freed = || async { consumer(&site).await.is_ok_and(|freed| freed["last_error"] == json!(null)) };
        within(PATIENCE, "no error", freed).await?;
        assert_eq!(relay.get("/healthz").await?.0, 200);
        let mut seen = numbers(&receiver)?;
        seen.dedup();
        assert_eq!(seen, (0..7).collect::<Vec<_>>(), "nothing was skipped, and only the failing one came again");
        assert_eq!(relay.stop().await?, 0);
        let warned = relay.log().matches("an entry of the changelog was not taken").count();
        assert!((1..=3).contains(&warned), "once per change: {}", relay.log());
    }
    Ok(())
}

#[tokio::test]
async fn an_entry_is_a_message_with_its_own_id_and_the_source_as_its_key() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    write(&site, 0..2).await?;
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let text = format!(
        "[source.shop]\nurl = \"{}\"\nchangelog = {{ enabled = true }}\n[sink.out]\ntype = \"stdout\"\n\
         [[route]]\nsource = \"shop\"\nchangelog = true\nname = \"trail\"\nsink = \"out\"\n",
        site.url
    );
    let mut relay = start(&site, &text).await?;
    within(PATIENCE, "two lines", || async { relay.out().lines().count() >= 2 }).await.with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    let listed = site.postrider(&["changelog", "list", "--json"]).await?.succeeded()?.json_lines()?;
    for (line, listed) in relay.out().lines().zip(&listed) {
        let line: Value = serde_json::from_str(line)?;
        assert_eq!(line["event_id"], listed["entry"]["id"], "{line}");
        assert_eq!((&line["namespace"], &line["topic"]), (&json!("changelog"), &json!("changelog")), "{line}");
        assert_eq!((&line["key"], &line["attempt"]), (&json!("shop"), &json!(1)), "{line}");
        assert_eq!(line["payload"], listed["entry"], "{line}");
    }
    assert_eq!(relay.out().lines().count(), 2, "messages have no route here and wait");
    assert_eq!(site.count("pending").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_position_that_is_not_in_the_changelog_any_more_is_told_and_mended_by_a_reset() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..3).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        arrive(&receiver, &relay, 3).await?;
        assert_eq!(relay.stop().await?, 0);
        site.source().await?.run("delete from postrider_changelog where uow_id = 'uow-2'").await?;
        // The lease is longer than the pauses between two looks, so the route must not wait for its own.
        let text = config(&site, &receiver.url).replace("lease = \"2s\"", "lease = \"1m\"");
        let mut relay = start(&site, &text.replace("[admin]", "[admin]\nstalled_after = \"1s\"")).await?;
        shows(&relay, HELD_BACK, "1").await?;
        let red = || async { relay.get("/healthz").await.is_ok_and(|answer| answer.0 == 503) };
        within(PATIENCE, "red", red).await.with_context(|| relay.log())?;
        let health: Value = serde_json::from_str(&relay.get("/healthz").await?.1)?;
        assert_eq!(health["sources"][0]["changelog"][0]["held_back"], "unreadable", "{health}");
        assert_eq!(metric(&relay, HELD_BACK).await?, "1", "it stays so");
        let held = consumer(&site).await?;
        assert!(held["last_error"].as_str().is_some_and(|why| why.contains("not in this changelog")), "{held}");
        write(&site, 3..5).await?;
        let lines = site.postrider(&["changelog", "list", "--json"]).await?.succeeded()?.json_lines()?;
        let place = lines[1]["cursor"].as_str().context("a cursor")?;
        site.postrider(&["changelog", "reset", "route/trail", "--to", place, "--yes"]).await?.succeeded()?;
        arrive(&receiver, &relay, 5).await?;
        assert_eq!(numbers(&receiver)?, [0, 1, 2, 3, 4]);
        shows(&relay, HELD_BACK, "0").await?;
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_reload_tries_at_once_what_would_have_waited_for_long() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(400, Duration::ZERO);
    write(&site, 0..2).await?;
    let text = config(&site, &receiver.url).replace("\"200ms\"", "\"1h\"");
    let mut relay = start(&site, &text).await?;
    arrive(&receiver, &relay, 1).await?;
    shows(&relay, HELD_BACK, "1").await?;
    receiver.answer(200, Duration::ZERO);
    relay.signal(Signal::SIGHUP)?;
    arrive(&receiver, &relay, 3).await?;
    assert_eq!(numbers(&receiver)?, [0, 0, 1]);
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

/// Every arrival is the next one, or goes back to what a crash has left unwritten.
fn in_order(seen: &[usize], crashes: usize) -> Result<()> {
    let (mut newest, mut back) = (None, 0);
    let mut last: Option<usize> = None;
    for number in seen {
        let follows = last.map_or(0, |last| last + 1);
        if *number != follows {
            ensure!(*number < follows, "{number} came when {follows} was next: {seen:?}");
            ensure!(follows - number <= 101, "it went back from {follows} to {number}");
            back += 1;
        }
        last = Some(*number);
        newest = newest.max(last);
    }
    ensure!(last == newest, "it ended at {last:?} and had been at {newest:?}: {seen:?}");
    ensure!(back <= crashes, "it went back {back} times: {seen:?}");
    Ok(())
}

#[tokio::test]
async fn after_kill_9_nothing_is_missing_and_the_order_is_kept() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        receiver.answer(200, Duration::from_millis(3));
        write(&site, 0..300).await?;
        for at in [60, 140, 200] {
            let mut relay = start(&site, &config(&site, &receiver.url)).await?;
            let there = || async { numbers(&receiver).is_ok_and(|numbers| numbers.contains(&at)) };
            within(PATIENCE, "some", there).await.with_context(|| relay.log())?;
            relay.signal(Signal::SIGKILL)?;
            relay.ended(PATIENCE).await?;
        }
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        let all = || async { numbers(&receiver).is_ok_and(|numbers| numbers.contains(&299)) };
        within(PATIENCE, "the rest", all).await.with_context(|| relay.log())?;
        assert_eq!(relay.stop().await?, 0);
        let seen = numbers(&receiver)?;
        in_order(&seen, 3)?;
        assert!((0..300).all(|number| seen.contains(&number)), "{seen:?}");
        let mut ids: BTreeMap<usize, Value> = BTreeMap::new();
        for arrival in receiver.arrivals().iter() {
            let entry: Value = serde_json::from_slice(&arrival.body)?;
            let before = ids.entry(number(arrival)?).or_insert_with(|| entry["id"].clone());
            assert_eq!(*before, entry["id"], "what comes again has the same id");
        }
    }
    Ok(())
}

#[tokio::test]
async fn of_two_relays_one_works_and_the_other_takes_over() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        // The other takes over because the lease is given back, not because it has ended.
        let text = config(&site, &receiver.url).replace("lease = \"2s\"", "lease = \"1m\"");
        let mut first = start(&site, &text).await?;
        let works = |relay: &Relay| relay.log().contains("delivering the changelog");
        within(PATIENCE, "the first", || async { works(&first) }).await.with_context(|| first.log())?;
        let mut second = start(&site, &text).await?;
        second.admin().await?;
        write(&site, 0..50).await?;
        arrive(&receiver, &first, 50).await?;
        let health = || async {
            let answer: Value = serde_json::from_str(&second.get("/healthz").await?.1)?;
            Ok::<Value, anyhow::Error>(answer["sources"][0]["changelog"][0]["works"].clone())
        };
        assert_eq!(health().await?, json!(false), "{}", second.log());
        assert!(!works(&second), "{}", second.log());
        assert_eq!(first.stop().await?, 0);
        write(&site, 50..100).await?;
        arrive(&receiver, &second, 100).await?;
        assert_eq!(health().await?, json!(true), "{}", second.log());
        assert_eq!(second.stop().await?, 0);
        assert_eq!(numbers(&receiver)?, (0..100).collect::<Vec<_>>(), "each once");
    }
    Ok(())
}

#[tokio::test]
async fn a_reload_moves_a_route_without_loss_or_repetition() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let (old, new) = (Receiver::start().await?, Receiver::start().await?);
    old.answer(200, Duration::from_millis(5));
    write(&site, 0..200).await?;
    let mut relay = start(&site, &config(&site, &old.url)).await?;
    arrive(&old, &relay, 20).await?;
    site.file("postrider.toml", &config(&site, &new.url))?;
    relay.signal(Signal::SIGHUP)?;
    let all = || async { numbers(&new).is_ok_and(|numbers| numbers.contains(&199)) };
    within(PATIENCE, "the rest", all).await.with_context(|| relay.log())?;
    let seen: Vec<usize> = numbers(&old)?.into_iter().chain(numbers(&new)?).collect();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_stop_waits_for_the_publish_under_way_and_a_short_grace_is_told() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_millis(1_500));
    write(&site, 0..3).await?;
    let text = config(&site, &receiver.url);
    let mut relay = start(&site, &text).await?;
    arrive(&receiver, &relay, 1).await?;
    assert_eq!(relay.stop().await?, 0, "{}", relay.log());
    assert_eq!(consumer(&site).await?["behind"], 2, "what was under way counts, and nothing else was begun");
    assert_eq!(receiver.arrivals().len(), 1);
    let mut relay = start(&site, &format!("{text}\n[relay]\nshutdown_grace = \"100ms\"\n")).await?;
    arrive(&receiver, &relay, 2).await?;
    assert_eq!(relay.stop().await?, 3, "{}", relay.log());
    Ok(())
}

async fn ask(relay: &Relay, path: &str, token: Option<&str>) -> Result<(u16, Value)> {
    let url = format!("http://{}{path}", relay.admin().await?);
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let request = token.iter().fold(client.get(url), |request, token| request.bearer_auth(token));
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{status}: {text}"))?))
}

#[tokio::test]
async fn pages_are_read_over_http_and_what_is_wrong_has_its_status() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..5).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        let ask = |path: String| ask(&relay, Box::leak(path.into_boxed_str()), None);
        let (status, first) = ask("/changelog/shop?limit=2".into()).await?;
        assert_eq!((status, &first["more"]), (200, &json!(true)), "{first}");
        assert_eq!(first["entries"].as_array().map(Vec::len), Some(2));
        assert_eq!(first["entries"][1]["payload"]["json"]["mutations"][0]["externalId"], "order-1", "{first}");
        let next = first["next"].as_str().context("a cursor")?;
        let rest = ask(format!("/changelog/shop?after={next}&limit=100000")).await?.1;
        assert_eq!(rest["entries"].as_array().map(Vec::len), Some(3), "{rest}");
        assert_eq!((&rest["more"], &rest["store"]), (&json!(false), &first["store"]));
        let stamp = first["entries"][1]["versionstamp"].as_str().context("a stamp")?;
        assert_eq!(ask(format!("/changelog/shop?after={stamp}")).await?.1["entries"], rest["entries"]);

        let other = format!("c1.{}.{stamp}.{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let store = next.split('.').nth(1).context("a store")?;
        let lost = format!("c1.{store}.{stamp}.{}", uuid::Uuid::new_v4().simple());
        for (path, expected, said) in [
            ("/changelog/shop?limit=0".to_owned(), 400, "limit"),
            ("/changelog/shop?limit=x".to_owned(), 400, "limit"),
            ("/changelog/shop?after=x".to_owned(), 400, "after"),
            ("/changelog/shop?cursor=x".to_owned(), 400, "no parameter"),
            ("/changelog/other".to_owned(), 404, "no changelog"),
            ("/changelog/other/stream".to_owned(), 404, "no changelog"),
            (format!("/changelog/shop?after={other}"), 409, "is of changelog"),
            (format!("/changelog/shop/stream?after={other}"), 409, "is of changelog"),
            (format!("/changelog/shop?after={lost}"), 409, "not in this changelog"),
            (format!("/changelog/shop/stream?after={lost}"), 409, "not in this changelog"),
        ] {
            let (status, answer) = ask(path.clone()).await?;
            assert_eq!(status, expected, "{path}: {answer}");
            assert!(answer["error"].as_str().is_some_and(|error| error.contains(said)), "{path}: {answer}");
        }
        site.source().await?.run("alter table postrider_changelog rename to elsewhere").await?;
        let (status, answer) = ask("/changelog/shop".into()).await?;
        assert_eq!(status, 500, "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains("postrider migrate")), "{answer}");
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_token_is_needed_where_there_is_one_and_what_is_not_served_is_not_there() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    write(&site, 0..1).await?;
    let served = config(&site, &receiver.url);
    let guarded = served.replace("serve = true", "serve = true\ntoken = \"bird\"");
    let mut relay = start(&site, &guarded).await?;
    for path in ["/changelog/shop", "/changelog/shop/stream"] {
        for token in [None, Some("bir"), Some("birds"), Some("Bird")] {
            assert_eq!(ask(&relay, path, token).await?.0, 401, "{path} {token:?}");
        }
    }
    assert_eq!(ask(&relay, "/changelog/shop", Some("bird")).await?.0, 200);
    assert!(!relay.log().contains("bird"), "{}", relay.log());
    site.file("postrider.toml", &served.replace("serve = true", ""))?;
    relay.signal(Signal::SIGHUP)?;
    let gone = || async { ask(&relay, "/changelog/shop", Some("bird")).await.is_ok_and(|answer| answer.0 == 404) };
    within(PATIENCE, "it is gone", gone).await.with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

/// The lines of a stream, as they come.
struct Lines {
    body: std::pin::Pin<Box<dyn futures::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>,
    read: Vec<u8>,
}

impl Lines {
    async fn open(relay: &Relay, path: &str) -> Result<Self> {
        let url = format!("http://{}{path}", relay.admin().await?);
        let answer = reqwest::Client::builder().no_proxy().build()?.get(url).send().await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        ensure!(answer.headers()["content-type"] == "application/x-ndjson");
        let body = futures::stream::unfold(answer, |mut answer| async move {
            let chunk = answer.chunk().await.transpose()?;
            Some((chunk, answer))
        });
        Ok(Self { body: Box::pin(body), read: Vec::new() })
    }

    /// The next line, or none at the end.
    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match tokio::time::timeout(PATIENCE, self.body.next()).await.context("no line")? {
                Some(chunk) => self.read.extend(chunk?),
                None => return Ok(None),
            }
        }
    }

    /// The next line with an entry.
    async fn entry(&mut self) -> Result<Value> {
        loop {
            match self.next().await? {
                Some(line) if line.get("entry").is_some() => return Ok(line),
                Some(_) => {}
                None => bail!("the stream ended"),
            }
        }
    }
}

#[tokio::test]
async fn a_stream_follows_and_ends_with_the_relay() -> Result<()> {
    for site in [Site::postgres().await?, Site::sqlite().await?] {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..3).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        let mut lines = Lines::open(&relay, "/changelog/shop/stream").await?;
        let mut cursor = String::new();
        for number in 0..5 {
            if number == 3 {
                write(&site, 3..5).await?;
            }
            let line = lines.entry().await?;
            assert_eq!(line["entry"]["uowId"], format!("uow-{number}"));
            if number == 2 {
                cursor = line["cursor"].as_str().context("a cursor")?.to_owned();
            }
        }
        let mut later = Lines::open(&relay, &format!("/changelog/shop/stream?after={cursor}")).await?;
        assert_eq!(later.entry().await?["entry"]["uowId"], "uow-3", "a cursor goes on where it was");
        let mut ahead = Lines::open(&relay, "/changelog/shop/stream?after=00000000000000000006ffff").await?;
        let said = ahead.next().await?.context("a line")?;
        let place = said["cursor"].as_str().context("a cursor")?;
        assert!(said.get("entry").is_none() && place.contains(".00000000000000000006ffff."), "it is heard: {said}");
        let mut likewise = Lines::open(&relay, &format!("/changelog/shop/stream?after={place}")).await?;
        write(&site, 5..8).await?;
        assert_eq!(ahead.entry().await?["entry"]["uowId"], "uow-6", "a stamp that lies ahead is waited for");
        assert_eq!(likewise.entry().await?["entry"]["uowId"], "uow-6", "and so is its cursor");
        assert_eq!(relay.stop().await?, 0);
        while let Some(line) = lines.next().await? {
            assert!(line.get("error").is_none(), "{line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_come_back() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let relay = start(&site, &config(&site, &receiver.url)).await?;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(Lines::open(&relay, "/changelog/shop/stream").await?);
    }
    let (status, answer) = ask(&relay, "/changelog/shop/stream", None).await?;
    assert_eq!(status, 503, "{answer}");
    assert_eq!(ask(&relay, "/changelog/shop", None).await?.0, 200, "pages are read all the same");
    write(&site, 0..5).await?;
    arrive(&receiver, &relay, 5).await?;
    drop(open);
    let again = || async { Lines::open(&relay, "/changelog/shop/stream").await.is_ok() };
    within(PATIENCE, "a place", again).await?;
    Ok(())
}

#[tokio::test]
async fn pages_that_nobody_takes_are_bounded_and_their_places_come_back() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    write(&site, 0..1).await?;
    // More than the buffers between two sockets hold.
    let large = "update postrider_changelog set payload = json_set(payload, '$.json.large', hex(zeroblob(5000000)))";
    site.source().await?.run(large).await?;
    let relay = start(&site, &config(&site, &receiver.url)).await?;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = tokio::net::TcpStream::connect(relay.admin().await?).await?;
        client.write_all(b"GET /changelog/shop HTTP/1.1\r\nhost: here\r\n\r\n").await?;
        let mut begin = [0; 15];
        client.read_exact(&mut begin).await?;
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        clients.push(client);
    }
    let (status, answer) = ask(&relay, "/changelog/shop", None).await?;
    assert_eq!(status, 503, "{answer}");
    drop(clients);
    let again = || async { ask(&relay, "/changelog/shop", None).await.is_ok_and(|answer| answer.0 == 200) };
    within(PATIENCE, "a place", again).await?;
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_away_is_said_and_the_route_goes_on_when_it_is_back() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let server = Postgres::shared().await?;
    let database = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let url = site.url.replace(&format!(":{}/", server.port()), &format!(":{}/", database.port()));
    let receiver = Receiver::start().await?;
    write(&site, 0..5).await?;
    let mut relay = start(&site, &config_of(&url, &receiver.url)).await?;
    arrive(&receiver, &relay, 5).await?;
    database.set(Mode::Reset);
    let away = || async { ask(&relay, "/changelog/shop", None).await.is_ok_and(|answer| answer.0 == 503) };
    within(PATIENCE, "503", away).await.with_context(|| relay.log())?;
    write(&site, 5..10).await?;
    database.set(Mode::Pass);
    let all = || async { numbers(&receiver).is_ok_and(|numbers| numbers.contains(&9)) };
    within(PATIENCE, "the rest", all).await.with_context(|| relay.log())?;
    in_order(&numbers(&receiver)?, 1)?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn the_changelog_is_listed_page_by_page_and_payloads_only_when_asked_for() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let none = site.postrider(&["changelog", "list"]).await?.succeeded()?;
        assert!(none.out.contains("no entries"), "{none:?}");
        write(&site, 0..5).await?;
        let first = site.postrider(&["changelog", "list", "--limit", "2"]).await?.succeeded()?;
        for part in ["uow-0", "uow-1", "shop.orders", "there are more; go on with --after c1."] {
            assert!(first.out.contains(part), "{part}: {first:?}");
        }
        assert!(!first.out.contains("uow-2") && !first.all().contains("canary"), "{first:?}");
        let next = first.out.split("--after ").nth(1).context("a cursor")?.trim().to_owned();
        let rest = site.postrider(&["changelog", "list", "--after", &next, "--payload"]).await?.succeeded()?;
        assert!(rest.out.contains("uow-2") && rest.out.contains("uow-4") && !rest.out.contains("uow-1"), "{rest:?}");
        assert!(rest.out.contains("canary"), "{rest:?}");
        let lines = site.postrider(&["changelog", "list", "--json"]).await?.succeeded()?.json_lines()?;
        assert_eq!(lines.len(), 5);
        let stamp = lines[3]["entry"]["versionstamp"].as_str().context("a stamp")?;
        let last = site.postrider(&["changelog", "list", "--json", "--after", stamp]).await?.succeeded()?;
        assert_eq!(last.json_lines()?, lines[4..]);
        let bad = site.postrider(&["changelog", "list", "--after", "yesterday"]).await?.failed_with(2)?;
        assert!(bad.err.contains("no cursor") || bad.err.contains("versionstamp"), "{bad:?}");
        let other = format!("c1.{}.{stamp}.{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let other = site.postrider(&["changelog", "list", "--after", &other]).await?.failed_with(1)?;
        assert!(other.err.contains("begin again"), "{other:?}");
    }
    Ok(())
}

#[tokio::test]
async fn list_follow_goes_on_until_it_is_told_to_end() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    write(&site, 0..2).await?;
    let out = site.directory.path().join("followed");
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["changelog", "list", "--follow", "--json", "--database-url", &site.url])
        .stdout(std::fs::File::create(&out)?)
        .kill_on_drop(true)
        .spawn()?;
    let lines = || std::fs::read_to_string(&out).map(|text| text.lines().count()).unwrap_or_default();
    within(PATIENCE, "what is there", || async { lines() == 2 }).await?;
    write(&site, 2..4).await?;
    within(PATIENCE, "what comes", || async { lines() == 4 }).await?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id().context("it ended")?)?);
    nix::sys::signal::kill(pid, Signal::SIGINT)?;
    let status = tokio::time::timeout(PATIENCE, child.wait()).await??;
    assert_eq!(status.code(), Some(0));
    let some = site.postrider(&["changelog", "list", "--follow", "--limit", "3"]).await?.succeeded()?;
    assert_eq!(some.out.lines().count(), 3, "{some:?}");
    Ok(())
}

#[tokio::test]
async fn list_follow_ends_when_it_is_told_to_in_the_middle_of_a_backlog() -> Result<()> {
    const BACKLOG: usize = 1_500;
    let site = Site::sqlite().await?.migrated().await?;
    write(&site, 0..BACKLOG).await?;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["changelog", "list", "--follow", "--json", "--database-url", &site.url])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    lines.next_line().await?.context("a line")?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id().context("it ended")?)?);
    nix::sys::signal::kill(pid, Signal::SIGINT)?;
    let mut read = 1;
    while tokio::time::timeout(PATIENCE, lines.next_line()).await.context("it does not end")??.is_some() {
        read += 1;
    }
    assert!(read < BACKLOG, "it went on to the end");
    assert_eq!(tokio::time::timeout(PATIENCE, child.wait()).await??.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_consumer_is_moved_and_forgotten_only_with_yes() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        write(&site, 0..5).await?;
        let mut relay = start(&site, &config(&site, &receiver.url)).await?;
        arrive(&receiver, &relay, 5).await?;
        let read = || async { consumer(&site).await.is_ok_and(|consumer| consumer["behind"] == 0) };
        within(PATIENCE, "its position", read).await?;
        let reset = ["changelog", "reset", "route/trail", "--to", "beginning"];
        let dry = site.postrider(&reset).await?.succeeded()?;
        assert!(dry.out.contains("would be moved") && dry.out.contains("--yes"), "{dry:?}");
        assert_eq!(consumer(&site).await?["behind"], 0);
        let done = site.postrider(&[&reset[..], &["--yes", "--json"]].concat()).await?.succeeded()?.json()?;
        assert_eq!((&done["reset"], &done["to"]), (&json!(true), &json!("beginning")), "{done}");
        arrive(&receiver, &relay, 10).await?;
        assert_eq!(numbers(&receiver)?, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], "a running relay goes on from there");
        assert_eq!(relay.stop().await?, 0);

        site.postrider(&["changelog", "reset", "route/trail", "--to", "beginning", "--yes"]).await?.succeeded()?;
        assert!(consumer(&site).await?["behind"].as_u64().is_some_and(|behind| behind >= 5));
        site.postrider(&["changelog", "reset", "route/trail", "--to", "head", "--yes"]).await?.succeeded()?;
        assert_eq!(consumer(&site).await?["behind"], 0);
        let lines = site.postrider(&["changelog", "list", "--json"]).await?.succeeded()?.json_lines()?;
        for place in ["/entry/versionstamp", "/cursor"] {
            let place = lines[2].pointer(place).and_then(Value::as_str).context("a place")?;
            site.postrider(&["changelog", "reset", "route/trail", "--to", place, "--yes"]).await?.succeeded()?;
            assert_eq!(consumer(&site).await?["cursor"], lines[2]["cursor"]);
        }
        let stamp = lines[2].pointer("/entry/versionstamp").and_then(Value::as_str).context("a stamp")?;
        let between = format!("{}ffff", &stamp[..20]);
        let reset = ["changelog", "reset", "route/trail", "--to", &between];
        let dry = site.postrider(&reset).await?.succeeded()?;
        assert!(dry.out.contains(&format!("the newest entry up to {between}")), "{dry:?}");
        let done = site.postrider(&[&reset[..], &["--yes", "--json"]].concat()).await?.succeeded()?.json()?;
        assert_eq!(done["to"], stamp, "where it really is: {done}");
        let unknown = site.postrider(&["changelog", "reset", "nobody", "--to", "head"]).await?.failed_with(1)?;
        assert!(unknown.err.contains("route/trail"), "{unknown:?}");
        site.postrider(&["changelog", "reset", "route/trail", "--to", "yesterday"]).await?.failed_with(2)?;

        site.postrider(&["changelog", "forget", "route/trail"]).await?.succeeded()?;
        consumer(&site).await?;
        site.postrider(&["changelog", "forget", "route/trail", "--yes"]).await?.succeeded()?;
        let none = site.postrider(&["changelog", "consumers"]).await?.succeeded()?;
        assert!(none.out.contains("no consumers"), "{none:?}");
    }
    Ok(())
}
