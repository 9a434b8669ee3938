//! The changelog in the binary: routes that keep the order.

#[path = "changelog/commands.rs"]
mod commands;
#[path = "changelog/http.rs"]
mod http;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postrider::{AnyStore, Connect, Names};
use postrider_changelog::{Change, Changelog, Operation, Value as Cell};
use serde_json::{Value, json};
use testkit::{Mode, Postgres, Proxy, Signal, undisturbed, within};

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

/// What the admin endpoint answers: its status, and its JSON.
async fn ask(relay: &Relay, path: &str, token: Option<&str>) -> Result<(u16, Value)> {
    let url = format!("http://{}{path}", relay.admin().await?);
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let request = token.iter().fold(client.get(url), |request, token| request.bearer_auth(token));
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{status}: {text}"))?))
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
    // The publish must be under way when the relay is told to stop.
    undisturbed(Duration::from_secs(16), stopped_while_publishing).await
}

async fn stopped_while_publishing() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    receiver.answer(200, Duration::from_secs(4));
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
