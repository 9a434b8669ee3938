//! Tables that were there before Postrider came, driven by the binary.

use anyhow::{Context as _, Result, ensure};
use postrider::Layout;
use postrider::layout::{PRESETS, preset};
use serde_json::Value;
use testkit::within;

use crate::support::{PATIENCE, Relay, Site};

/// What the tables of a preset refer to.
const AROUND: &str = "create table tenants (id uuid primary key); create table channel_messages (id uuid primary key)";

/// A database with the table of a preset.
pub async fn with_table_of(layout: &str) -> Result<Site> {
    let site = Site::postgres().await?;
    site.source().await?.run(AROUND).await?;
    site.postrider(&["migrate", "--layout", layout]).await?.succeeded()?;
    Ok(site)
}

/// A configuration with one source and standard output.
pub fn configuration(site: &Site, source: &str) -> Result<String> {
    let text = format!(
        "[source.s]\nurl = {:?}\n{source}\n[sink.out]\ntype = \"stdout\"\npayload = true\n[[route]]\nsink = \"out\"\n",
        site.url
    );
    Ok(site.file("postrider.toml", &text)?.display().to_string())
}

#[tokio::test]
async fn every_known_layout_is_listed_and_can_be_copied_into_a_configuration() -> Result<()> {
    let site = Site::postgres().await?;
    let listed = site.postrider(&["layout", "list"]).await?.succeeded()?.out;
    for name in PRESETS {
        ensure!(listed.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {listed}");
        let shown = site.postrider(&["layout", "show", name]).await?.succeeded()?.out;
        let section = shown.lines().find_map(|line| line.strip_prefix("[layout.")).context("a section")?;
        let own = section.trim_end_matches(']');
        let file = configuration(&site, &format!("layout = {own:?}\ntable = \"t\"\n{shown}"))?;
        site.postrider(&["config", "check", "--config", &file]).await?.succeeded().context(name)?;
    }
    let refused = site.postrider(&["layout", "show", "talky"]).await?.failed_with(2)?;
    ensure!(refused.err.contains("known are postrider"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn the_table_of_every_known_layout_passes_its_check() -> Result<()> {
    for name in PRESETS {
        let site = with_table_of(name).await?;
        let ran = site.postrider(&["layout", "check", "--layout", name, "--json"]).await?.succeeded().context(name)?;
        let checked = &ran.json()?[0];
        let findings = checked["findings"].as_array().context("findings")?;
        let warned: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] != "fine").collect();
        match name {
            // Its owners have locked the table, with no index that has the rows that wait in their order.
            "packfinderz" => {
                let wanted = "run: create index concurrently on \"public\".\"outbox_events\" (\"created_at\") where \"published_at\" is null";
                ensure!(warned.len() == 1 && warned[0]["fix"] == wanted, "{warned:#?}");
                site.source().await?.run(wanted.trim_start_matches("run: ")).await?;
                let again = site.postrider(&["layout", "check", "--layout", name, "--json"]).await?.json()?;
                ensure!(!again.to_string().contains("warning"), "{again:#}");
            }
            _ => ensure!(warned.is_empty(), "{name}: {warned:#?}"),
        }
        let lacks: Vec<&str> =
            checked["lacks"].as_array().into_iter().flatten().filter_map(|one| one["ability"].as_str()).collect();
        let wanted: Vec<&str> = preset(name)?.lacks().map(|ability| ability.as_str()).collect();
        ensure!(lacks == wanted, "{name}: {lacks:?}");
    }
    Ok(())
}

/// What two layouts must agree on to mean the same table.
pub fn meaning(layout: &Value) -> Value {
    let mut layout = layout.clone();
    let table = layout.as_object_mut().expect("an object");
    // The catalog knows neither who counts what nor the owner's state machine, and has no name for one namespace.
    for key in
        ["counts", "dead_after_failed", "indexed_like_ours", "lanes", "batch", "lock_timeout", "last_error_limit"]
    {
        table.remove(key);
    }
    if table["namespace"].is_object() {
        table.remove("namespace");
    }
    layout
}

#[tokio::test]
async fn a_guess_about_the_table_of_every_known_layout_is_right() -> Result<()> {
    for name in PRESETS {
        let site = with_table_of(name).await?;
        let known = preset(name)?;
        let table = known.names.table().to_owned();
        let guessed = site.postrider(&["layout", "guess", "--table", &table, "--json"]).await?.succeeded()?.json()?;
        let (guess, wanted) = (meaning(&guessed["layout"]), meaning(&serde_json::to_value(&known)?));
        ensure!(guess == wanted, "{name}: {guess:#}\nis not\n{wanted:#}");
        // What is printed for people can be put into a configuration, and the table passes with it.
        let printed = site.postrider(&["layout", "guess", "--table", &table, "--name", "own"]).await?.succeeded()?.out;
        let source = format!("layout = \"own\"\ntable = {table:?}\nprefix = {:?}\n{printed}", known.names.prefix());
        let file = configuration(&site, &source)?;
        site.postrider(&["layout", "check", "--config", &file]).await?.succeeded().context(name)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_column_that_is_missing_is_named_and_a_relay_does_not_start_without_it() -> Result<()> {
    let site = with_table_of("talkie").await?;
    site.source().await?.run("alter table outbox drop column last_error").await?;
    let checked = site.postrider(&["layout", "check", "--layout", "talkie"]).await?.failed_with(1)?;
    ensure!(checked.out.contains("has no column \"last_error\""), "{checked:?}");
    let ran = site.postrider(&["run", "--sink", "stdout", "--layout", "talkie"]).await?.failed_with(1)?;
    ensure!(ran.err.contains("has no column \"last_error\""), "{ran:?}");
    let examined = site.postrider(&["doctor", "--layout", "talkie"]).await?.failed_with(1)?;
    ensure!(examined.out.contains("layout-columns") && !examined.out.contains("claim-plan"), "{examined:?}");
    let nothing = site.postrider(&["layout", "check", "--layout", "talkie", "--table", "nothing"]).await?;
    ensure!(nothing.failed_with(1)?.out.contains("there is no table \"public\".\"nothing\""));
    let guessed = site.postrider(&["layout", "guess", "--table", "nothing"]).await?.failed_with(1)?;
    ensure!(guessed.err.contains("there is no table \"nothing\""), "{guessed:?}");
    Ok(())
}

#[tokio::test]
async fn what_would_be_slow_refused_or_forbidden_is_said_with_what_to_do() -> Result<()> {
    let site = with_table_of("talkie").await?;
    let source = site.source().await?;
    source
        .run(
            "drop index outbox_batch_idx; drop index outbox_left_idx; alter table outbox add column shard int not null",
        )
        .await?;
    let checked = site.postrider(&["layout", "check", "--layout", "talkie"]).await?.succeeded()?.out;
    for said in [
        "create index concurrently on \"public\".\"outbox\" (\"next_attempt_at\") where \"status\" in ('pending', 'failed')",
        "(\"last_attempt_at\") where \"status\" = 'publishing'",
        "enqueue cannot write rows: the column \"shard\" must have a value",
    ] {
        ensure!(checked.contains(said), "{said}: {checked}");
    }
    source.run("alter table outbox drop constraint outbox_status_check, add constraint c check (status in ('pending', 'published'))").await?;
    source
        .run("alter table outbox alter column retry_count type text, alter column next_attempt_at type timestamp")
        .await?;
    let checked = site.postrider(&["layout", "check", "--layout", "talkie"]).await?.failed_with(1)?.out;
    for said in [
        "does not allow the word \"dead_lettered\" of the layout; it allows pending, published",
        "the column \"retry_count\", which the layout has for attempts, is text; it must be a whole number",
        "the column \"next_attempt_at\" has no time zone; it is read and written as UTC",
    ] {
        ensure!(checked.contains(said), "{said}: {checked}");
    }
    source.run("create role reader login; grant select on outbox to reader").await?;
    let (_, place) = site.url.split_once('@').context("a host")?;
    let url = format!("postgres://reader@{place}");
    let checked = site.postrider(&["layout", "check", "--url", &url, "--layout", "talkie"]).await?.failed_with(1)?.out;
    ensure!(checked.contains("grant update (\"status\", "), "{checked}");
    Ok(())
}

#[tokio::test]
async fn a_relay_delivers_the_messages_of_a_table_that_others_write() -> Result<()> {
    let site = with_table_of("talkie").await?;
    let source = site.source().await?;
    source
        .run(
            "insert into outbox (topic, key, payload_json, idempotency_key) \
             select 'orders', 'k' || n, jsonb_build_object('n', n), 'i' || n from generate_series(1, 20) as n",
        )
        .await?;
    let file = configuration(&site, "layout = \"talkie\"\n")?;
    let relay = Relay::with_config(file.as_ref()).await?;
    within(PATIENCE, "all delivered", || async { relay.out().lines().count() == 20 }).await.context(relay.log())?;
    let published =
        "select count(*) from outbox where status = 'published' and retry_count = 0 and published_at is not null";
    within(PATIENCE, "all published", || async { source.count(published).await.is_ok_and(|count| count == 20) })
        .await?;
    let first: Value = serde_json::from_str(relay.out().lines().next().context("a line")?)?;
    ensure!(first["topic"] == "orders" && first["namespace"] == "outbox", "{first}");
    let status = site.postrider(&["status", "--config", &file, "--json"]).await?.succeeded()?;
    ensure!(status.out.contains("\"delivered\":20"), "{status:?}");
    Ok(())
}

/// Rows that are locked while they are published, and deleted afterwards; without a configuration.
#[tokio::test]
async fn a_relay_empties_the_table_of_the_outbox_event_router() -> Result<()> {
    let site = with_table_of("debezium").await?;
    let source = site.source().await?;
    source
        .run(
            "insert into outboxevent select gen_random_uuid(), 'Order', 'o' || n, 'OrderCreated', jsonb_build_object('n', n) \
             from generate_series(1, 120) as n",
        )
        .await?;
    let arguments = ["--url", &site.url, "--layout", "debezium", "--sink", "stdout"];
    let relay = Relay::spawn(&arguments, &[])?;
    relay.until_it_delivers().await?;
    let left = || async { source.count("select count(*) from outboxevent").await.is_ok_and(|count| count == 0) };
    within(PATIENCE, "none left", left).await.context(relay.log())?;
    ensure!(relay.out().lines().count() == 120);
    ensure!(
        relay.out().contains("\"event_type\":\"OrderCreated\""),
        "{}",
        relay.out().lines().next().unwrap_or_default()
    );
    Ok(())
}

/// The words of a schema that we did not choose: capitals, whole numbers, times without a zone, `json`, `varchar`.
const CAMEL: &str = r#"
create type "OrderEvent" as enum ('orderPlaced', 'orderCancelled');
create table "OrderOutbox" (
  "id" bigserial primary key, "eventType" "OrderEvent" not null, "orderId" bigint not null, "body" json not null,
  "state" varchar(20) not null default 'NEW', "tries" smallint not null default 0,
  "dueAt" timestamp not null default (now() at time zone 'utc'), "lockedUntil" timestamp,
  "error" varchar(60), "createdAt" timestamp not null default (now() at time zone 'utc'), "sentAt" timestamp
);
create index on "OrderOutbox" ("dueAt") where "state" = 'NEW';
create index on "OrderOutbox" ("lockedUntil") where "state" = 'IN_PROGRESS'
"#;

const CAMEL_LAYOUT: &str = r#"
layout = "orders"
table = "OrderOutbox"
retry_base = "100ms"
retry_max = "100ms"
max_attempts = 2
[layout.orders]
id = "id"
id_kind = "integer"
namespace = { fixed = "shop" }
topic = { column = "eventType", type = "OrderEvent" }
key = { column = "orderId", type = "int8" }
payload = "body"
status = "state"
words = { pending = "NEW", processing = "IN_PROGRESS", delivered = "SENT", dead = "DEAD" }
claim = "lease"
locked_until = "lockedUntil"
attempts = "tries"
next_attempt_at = "dueAt"
last_error = "error"
last_error_limit = 60
created_at = "createdAt"
delivered_at = "sentAt"
"#;

#[tokio::test]
async fn a_table_of_any_shape_is_described_in_the_configuration_and_delivered() -> Result<()> {
    let site = Site::postgres().await?;
    let source = site.source().await?;
    source.run(CAMEL).await?;
    source.run(r#"insert into "OrderOutbox" ("eventType", "orderId", "body") select 'orderPlaced', n, json_build_object('n', n) from generate_series(1, 30) as n"#).await?;
    let file = configuration(&site, CAMEL_LAYOUT)?;
    site.postrider(&["config", "check", "--config", &file]).await?.succeeded()?;
    site.postrider(&["migrate", "--config", &file]).await?.succeeded()?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
    ensure!(checked.contains("it is read and written as UTC") && !checked.contains("problem"), "{checked}");
    let relay = Relay::with_config(file.as_ref()).await?;
    let sent = r#"select count(*) from "OrderOutbox" where "state" = 'SENT' and "tries" = 1 and "sentAt" between (now() at time zone 'utc') - interval '1 minute' and (now() at time zone 'utc')"#;
    within(PATIENCE, "all sent", || async { source.count(sent).await.is_ok_and(|count| count == 30) })
        .await
        .context(relay.log())?;
    let lines = relay.out();
    let ids: std::collections::BTreeSet<&str> = lines.lines().collect();
    ensure!(ids.len() == 30 && lines.contains("orderPlaced"), "{lines}");
    let examined = site.postrider(&["doctor", "--config", &file, "--verbose"]).await?.out;
    ensure!(examined.contains("fine layout-columns") && !examined.contains("claim-plan"), "{examined}");
    // A row that was left behind is given up by the sweep, and an operator puts it back.
    source.run(r#"insert into "OrderOutbox" ("eventType", "orderId", "body", "state", "tries", "lockedUntil") values ('orderCancelled', 99, '{}', 'IN_PROGRESS', 2, (now() at time zone 'utc') - interval '1 hour')"#).await?;
    let dead = r#"select count(*) from "OrderOutbox" where "state" = 'DEAD'"#;
    within(PATIENCE, "given up", || async { source.count(dead).await.is_ok_and(|count| count == 1) })
        .await
        .context(relay.log())?;
    let listed = site.postrider(&["dead", "list", "--config", &file, "--json"]).await?.succeeded()?;
    ensure!(listed.out.contains("\"key\":\"99\""), "{listed:?}");
    site.postrider(&["dead", "replay", "--all", "--yes", "--config", &file]).await?.succeeded()?;
    within(PATIENCE, "sent after all", || async { relay.out().contains("orderCancelled") })
        .await
        .context(relay.log())?;
    Ok(())
}

/// The event ids of the dead messages of a source.
async fn dead_ids(site: &Site, file: &str) -> Result<Vec<String>> {
    let listed = site.postrider(&["dead", "list", "--config", file, "--json"]).await?.succeeded()?;
    let ids = listed.json_lines()?.iter().map(|record| record["id"].as_str().map(str::to_owned)).collect::<Vec<_>>();
    ids.into_iter().map(|id| id.context("an id")).collect()
}

/// A consumer that knows an id drops the message: the first row of one database is not that of another.
#[tokio::test]
async fn the_same_number_in_two_databases_is_two_event_ids() -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let site = Site::postgres().await?;
        let source = site.source().await?;
        source.run(CAMEL).await?;
        source.run(r#"insert into "OrderOutbox" ("eventType", "orderId", "body", "state") values ('orderPlaced', 1, '{}', 'DEAD')"#).await?;
        for salt in ["", "id_salt = \"eu\"\n"] {
            let file = configuration(&site, &format!("{CAMEL_LAYOUT}{salt}"))?;
            let ids = dead_ids(&site, &file).await?;
            ensure!(ids.len() == 1 && ids == dead_ids(&site, &file).await?, "{ids:?}");
            let shown = site.postrider(&["dead", "show", &ids[0], "--config", &file]).await?.succeeded()?;
            ensure!(shown.out.contains("orderPlaced"), "{shown:?}");
            ensure!(seen.insert(ids[0].clone()), "{ids:?} was there before: {seen:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn two_servers_whose_numbers_would_be_the_same_event_ids_are_refused() -> Result<()> {
    let site = Site::postgres().await?;
    let twice = |host: &str, layout: &str| {
        let source = CAMEL_LAYOUT.split("[layout.orders]").next().unwrap_or_default();
        let source = source.replace("\"orders\"", &format!("{layout:?}"));
        let salted = CAMEL_LAYOUT.split_once("[layout.orders]").map_or("", |(_, rest)| rest);
        let second = format!("[source.t]\nurl = \"postgres://relay@{host}:5432/shop\"\n{source}");
        let first = CAMEL_LAYOUT.replacen("[layout.orders]", &format!("{second}\n[layout.orders]"), 1);
        let text = configuration(&site, &format!("{first}\n[layout.salted]{salted}id_salt = \"two\"\n"));
        let url = format!("{:?}", site.url);
        text.and_then(|file| {
            let text = std::fs::read_to_string(&file)?.replace(&url, "\"postgres://relay@one.example/shop\"");
            Ok(site.file("postrider.toml", &text)?.display().to_string())
        })
    };
    let file = twice("two.example", "orders")?;
    let refused = site.postrider(&["config", "check", "--config", &file]).await?.failed_with(2)?;
    ensure!(refused.all().contains("source.t.layout") && refused.all().contains("id_salt"), "{refused:#?}");
    let file = twice("two.example", "salted")?;
    site.postrider(&["config", "check", "--config", &file]).await?.succeeded()?;
    // Another role on the same server means the same rows, which have the same ids.
    let file = twice("ONE.example", "orders")?;
    let same = site.postrider(&["config", "check", "--config", &file]).await?;
    ensure!(!same.all().contains("id_salt"), "{same:#?}");
    Ok(())
}

/// The status of a table that takes any text is known by its rows.
#[tokio::test]
async fn a_guess_looks_at_rows_where_nothing_else_says_the_words() -> Result<()> {
    let site = Site::postgres().await?;
    let source = site.source().await?;
    source.run(&CAMEL.replace("varchar(20)", "text")).await?;
    source.run(r#"insert into "OrderOutbox" ("eventType", "orderId", "body", "state") values ('orderPlaced', 1, '{}', 'NEW'), ('orderPlaced', 2, '{}', 'SENT')"#).await?;
    let guessed =
        site.postrider(&["layout", "guess", "--table", "OrderOutbox", "--json"]).await?.succeeded()?.json()?;
    let layout: Layout = serde_json::from_value(guessed["layout"].clone())?;
    let words = layout.words.context("words")?;
    ensure!((&*words.pending, &*words.delivered, &*words.processing) == ("NEW", "SENT", "processing"), "{words:?}");
    ensure!(guessed["unsure"].to_string().contains("no row of the sample says what processing is called"), "{guessed}");
    ensure!(layout.id.name == "id" && layout.locked_until == Some("lockedUntil".into()), "{guessed}");
    Ok(())
}

#[tokio::test]
async fn other_layouts_are_refused_where_they_are_not_rendered() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    for name in ["packfinderz", "valinor", "debezium"] {
        let refused = site.postrider(&["layout", "check", "--layout", name]).await?.failed_with(1)?;
        ensure!(refused.err.contains("PostgreSQL"), "{refused:?}");
    }
    site.postrider(&["layout", "check"]).await?.succeeded()?;
    Ok(())
}
