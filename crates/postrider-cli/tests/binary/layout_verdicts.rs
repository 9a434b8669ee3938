//! What `postrider layout check` and `layout guess` say of tables that others have made, on every database.

use anyhow::{Context as _, Result, ensure};
use postrider::layout::preset;
use serde_json::Value;

use crate::layout::{configuration, meaning, with_table_of};
use crate::support::Site;

/// Which database a site is on, with its types.
pub struct Types {
    pub uuid: &'static str,
    pub json: &'static str,
    pub time: &'static str,
    pub now: &'static str,
    pub quote: char,
}

pub fn types(site: &Site) -> Types {
    match site.url.split_once(':') {
        Some(("mysql", _)) => {
            Types { uuid: "char(36)", json: "longtext", time: "datetime(6)", now: "(utc_timestamp(6))", quote: '`' }
        }
        Some(("sqlite", _)) => Types { uuid: "text", json: "text", time: "integer", now: "0", quote: '"' },
        _ => Types { uuid: "uuid", json: "jsonb", time: "timestamptz", now: "now()", quote: '"' },
    }
}

/// Every finding of a check as a line.
async fn check(site: &Site, arguments: &[&str]) -> Result<String> {
    Ok(site.postrider(&[&["layout", "check"], arguments].concat()).await?.out)
}

/// A status that cannot be used, because nothing says that a row is taken: delivered rows must not look as if they waited.
#[tokio::test]
async fn a_guess_never_proposes_to_publish_again_what_was_sent() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { uuid, json, time, now, .. }) = (site.source().await?, types(&site));
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, \
                 status varchar(20) not null default 'PENDING', retry_count int not null default 0, created_at {time} not null default {now})"
            ))
            .await?;
        source.run("insert into events (id, topic, payload, status) values ('00000000-0000-0000-0000-000000000001', 't', '{}', 'SENT')").await?;
        let guessed =
            site.postrider(&["layout", "guess", "--table", "events", "--json"]).await?.failed_with(1)?.json()?;
        let wrong = guessed["wrong"][0].as_str().context("what is wrong")?;
        ensure!(wrong.contains("\"status\" says which rows have been sent"), "{}: {guessed:#}", site.url);
        // What it says to run is enough.
        let (_, run) = wrong.split_once("run: ").context("what to run")?;
        source.run(run.split_once(", then guess again").context("the end")?.0).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events", "--json"]).await?.succeeded()?.json()?;
        ensure!(guessed["layout"]["words"]["delivered"] == "SENT", "{guessed:#}");
        ensure!(guessed["layout"]["claim"] == "lease", "{guessed:#}");
        source.run("create table numbered (id int primary key, payload text, status int not null)").await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "numbered"]).await?.failed_with(1)?.out;
        ensure!(guessed.contains("make it text or an enum"), "{guessed}");
    }
    Ok(())
}

#[tokio::test]
async fn a_mark_of_sent_rows_is_not_passed_over() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { uuid, json, .. }) = (site.source().await?, types(&site));
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, processed boolean not null default false)"
            ))
            .await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
        ensure!(guessed.contains("\"processed\" says which rows have been sent"), "{guessed}");
        ensure!(guessed.contains("add column delivered_at"), "{guessed}");
        if site.url.starts_with("postgres") {
            let described = "layout = \"own\"\ntable = \"events\"\n[layout.own]\nid = \"id\"\nnamespace = { fixed = \"n\" }\ntopic = \"topic\"\npayload = \"payload\"\nclaim = \"row_lock\"\n";
            let file = configuration(&site, described)?;
            let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
            ensure!(checked.contains("every row would be published, and deleted"), "{checked}");
            let ran = site.postrider(&["run", "--config", &file]).await?.failed_with(1)?;
            ensure!(ran.err.contains("every row would be published, and deleted"), "{ran:?}");
        }
    }
    Ok(())
}

/// Layouts that MySQL and SQLite have too.
const EVERYWHERE: [&str; 3] = ["modkit", "talkie", "debezium_keep"];

#[tokio::test]
async fn the_tables_of_known_layouts_pass_on_every_database() -> Result<()> {
    for name in EVERYWHERE {
        for site in Site::each().await? {
            site.postrider(&["migrate", "--layout", name]).await?.succeeded()?;
            let ran = site.postrider(&["layout", "check", "--layout", name, "--json"]).await?.succeeded()?;
            let findings = ran.json()?[0]["findings"].as_array().context("findings")?.clone();
            let wrong: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] != "fine").collect();
            ensure!(wrong.is_empty() && findings.len() > 5, "{name} {}: {wrong:#?}", site.url);
            let known = preset(name)?;
            let table = known.names.table();
            let guessed =
                site.postrider(&["layout", "guess", "--table", table, "--json"]).await?.succeeded()?.json()?;
            let (mut guess, mut wanted) = (guessed["layout"].clone(), serde_json::to_value(&known)?);
            if !site.url.starts_with("postgres") {
                // The presets' lengths are those of PostgreSQL.
                without_lengths(&mut guess);
                without_lengths(&mut wanted);
            }
            let (guess, wanted) = (meaning(&guess), meaning(&wanted));
            ensure!(guess == wanted, "{name} {}: {guess:#}\nis not\n{wanted:#}", site.url);
        }
    }
    Ok(())
}

/// Columns without the number of characters that they take; a column of which nothing else is said is its name.
fn without_lengths(layout: &mut Value) {
    let Some(table) = layout.as_object_mut() else { return };
    table.remove("max_length");
    match (table.len(), table.get("column")) {
        (1, Some(name)) => *layout = name.clone(),
        _ => table.values_mut().for_each(without_lengths),
    }
}

#[tokio::test]
async fn a_relay_does_not_start_on_a_table_that_lacks_a_column_on_any_database() -> Result<()> {
    for site in Site::each().await? {
        site.postrider(&["migrate", "--layout", "talkie"]).await?.succeeded()?;
        // A connection of SQLite may not know yet what another has renamed.
        let rename = async |from: &str, to: &str| {
            let source = site.source().await?;
            source.run(&format!("alter table outbox rename column {from} to {to}")).await
        };
        for column in ["payload_json", "published_at"] {
            rename(column, "another").await?;
            let wanted = format!("has no column \"{column}\"");
            for arguments in [&["run", "--sink", "stdout"][..], &["layout", "check"], &["doctor"]] {
                let ran = site.postrider(&[arguments, &["--layout", "talkie"]].concat()).await?.failed_with(1)?;
                ensure!(ran.all().contains(&wanted), "{}: {ran:?}", site.url);
            }
            rename("another", column).await?;
        }
        site.postrider(&["layout", "check", "--layout", "talkie"]).await?.succeeded()?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_slow_or_of_a_wrong_type_or_word_is_said_on_every_database() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { uuid, json, time, now, quote: q }) = (site.source().await?, types(&site));
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, \
                 state varchar(20) not null default 'NEW' check (state in ('NEW', 'BUSY', 'SENT', 'PARKED')), tries varchar(9) not null default '0', \
                 due {time} not null default {now}, until {time})"
            ))
            .await?;
        let described = "layout = \"own\"\ntable = \"events\"\n[layout.own]\nid = \"id\"\nnamespace = { fixed = \"n\" }\ntopic = \"topic\"\npayload = \"payload\"\nclaim = \"lease\"\n\
            status = \"state\"\nwords = { pending = \"NEW\", processing = \"BUSY\", delivered = \"SENT\", dead = \"LOST\" }\nattempts = \"tries\"\nnext_attempt_at = \"due\"\nlocked_until = \"until\"\n";
        let file = configuration(&site, described)?;
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
        let index = match q {
            '`' => "on `events` (`state`, `due`)",
            _ => "(\"due\") where \"state\" = 'NEW'",
        };
        for said in [
            "does not allow the word \"LOST\"",
            "rows whose \"state\" is \"PARKED\" are neither claimed nor counted",
            "which the layout has for attempts, is",
            index,
        ] {
            ensure!(checked.contains(said), "{}: {said}: {checked}", site.url);
        }
        // What it says to run about indexes is enough.
        for line in checked.lines().filter(|line| line.contains("run: create index")) {
            let sql = line.split_once("run: ").context("SQL")?.1;
            source.run(sql).await.with_context(|| sql.to_owned())?;
        }
        let checked = check(&site, &["--config", &file]).await?;
        ensure!(checked.contains("claims find their rows by an index"), "{}: {checked}", site.url);
    }
    Ok(())
}

/// An index serves a claim if it has the rows that wait side by side and in their order.
#[tokio::test]
async fn only_an_index_that_saves_reading_and_sorting_counts() -> Result<()> {
    let site = with_table_of("talkie").await?;
    let source = site.source().await?;
    let drop = "drop index if exists outbox_batch_idx, tried";
    for (index, serves) in [
        ("(next_attempt_at)", false),
        ("(status, next_attempt_at)", false),
        ("(next_attempt_at) where status = 'pending'", false),
        ("(next_attempt_at) where status <> 'published'", false),
        ("(next_attempt_at) where status in ('pending', 'failed') and topic = 'x'", false),
        ("(topic, next_attempt_at) where status in ('pending', 'failed')", false),
        ("(next_attempt_at) where status in ('pending', 'failed', 'published')", false),
        ("(next_attempt_at) where status in ('pending', 'failed')", true),
        ("(next_attempt_at, id) where status in ('pending', 'failed', 'publishing')", true),
    ] {
        source.run(&format!("{drop}; create index tried on outbox {index}")).await?;
        let checked = check(&site, &["--layout", "talkie"]).await?;
        ensure!(checked.contains("no index leads to the rows that are due") != serves, "{index}: {checked}");
    }
    let site = with_table_of("modkit").await?;
    let source = site.source().await?;
    source
        .run("drop index modkit_outbox_events_status_idx; create index on modkit_outbox_events (next_attempt_at)")
        .await?;
    let checked = check(&site, &["--layout", "modkit"]).await?;
    ensure!(checked.contains("no index leads to the rows that are due"), "{checked}");
    source.run("create index on modkit_outbox_events (status, next_attempt_at)").await?;
    ensure!(check(&site, &["--layout", "modkit"]).await?.contains("claims find their rows by an index"));
    Ok(())
}

/// What would make `enqueue` fail is said before it does.
#[tokio::test]
async fn an_enqueue_that_would_fail_is_foreseen() -> Result<()> {
    let site = with_table_of("modkit").await?;
    let source = site.source().await?;
    source
        .run("drop index modkit_outbox_events_dedupe_idx; create unique index on modkit_outbox_events (namespace, topic, dedupe_key) where status = 'pending'")
        .await?;
    let checked = check(&site, &["--layout", "modkit"]).await?;
    ensure!(checked.contains("enqueue with a dedupe key fails"), "{checked}");
    let enqueue = ["enqueue", "--layout", "modkit", "-n", "n", "-t", "t", "--dedupe-key", "k", "1"];
    site.postrider(&enqueue).await?.failed_with(1)?;
    let fix = checked.lines().find_map(|line| line.trim().strip_prefix("run: create unique")).context("a fix")?;
    source.run(&format!("create unique{fix}")).await?;
    site.postrider(&enqueue).await?.succeeded()?;
    ensure!(check(&site, &["--layout", "modkit"]).await?.contains("enqueue can write rows"));

    source
        .run(
            "create schema kinds; create type kinds.topic as enum ('a', 'b'); create type public.place as enum ('x'); \
             create table own (id uuid not null, topic kinds.topic not null, place place not null, payload jsonb not null, sent_at timestamptz)",
        )
        .await?;
    let described = |topic: &str, payload_kind: &str| {
        format!(
            "layout = \"own\"\ntable = \"own\"\n[layout.own]\nid = \"id\"\nnamespace = {{ fixed = \"n\" }}\ntopic = {topic}\npayload = \"payload\"\npayload_kind = {payload_kind:?}\nclaim = \"row_lock\"\ndelivered_at = \"sent_at\"\nfields = {{ place = {{ column = \"place\", type = \"place\" }} }}\n"
        )
    };
    let listed = "{ column = \"topic\", type = \"topic\", values = [\"a\", \"b\"] }";
    let file = configuration(&site, &described(listed, "json"))?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
    ensure!(checked.contains("nothing keeps the column \"id\" unique"), "{checked}");
    source.run("alter table own add primary key (id)").await?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
    ensure!(checked.contains("the type \"topic\" of the column \"topic\" is in the schema \"kinds\""), "{checked}");
    let enqueue = ["enqueue", "--config", &file, "-n", "n", "-t", "a", "-H", "place=x", "1"];
    site.postrider(&enqueue).await?.failed_with(1)?;
    // Neither listed nor in the search path.
    let file = configuration(&site, &described("{ column = \"topic\", type = \"topic\" }", "json"))?;
    ensure!(check(&site, &["--config", &file]).await?.contains("where it is not looked for"));
    source.run("alter type kinds.topic set schema public").await?;
    ensure!(check(&site, &["--config", &file]).await?.contains("enqueue can write rows"));
    site.postrider(&enqueue).await?.succeeded()?;
    let file = configuration(&site, &described(listed, "text"))?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
    ensure!(checked.contains("which the layout has for payload, is jsonb; it must be text"), "{checked}");
    Ok(())
}

#[tokio::test]
async fn rows_that_no_word_of_the_layout_means_are_told() -> Result<()> {
    let site = with_table_of("talkie").await?;
    let source = site.source().await?;
    source
        .run("alter table outbox drop constraint outbox_status_check, alter status drop not null, alter next_attempt_at drop not null")
        .await?;
    source
        .run("insert into outbox (topic, payload_json, idempotency_key, status) values ('t', '{}', '1', 'parked'), ('t', '{}', '2', null), ('t', '{}', '3', 'pending')")
        .await?;
    let checked = check(&site, &["--layout", "talkie"]).await?;
    for said in [
        "rows whose \"status\" is \"parked\" are neither claimed nor counted",
        "the column \"status\" may be null, and a row without a status is neither claimed nor counted",
        "the column \"next_attempt_at\" may be null",
    ] {
        ensure!(checked.contains(said), "{said}: {checked}");
    }
    Ok(())
}
