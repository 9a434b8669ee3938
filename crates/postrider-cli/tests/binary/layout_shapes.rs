//! Tables that look as if they could be worked with: what is computed, what has no rowid, what a crash empties.

use anyhow::{Context as _, Result, ensure};
use testkit::within;

use crate::layout::configuration;
use crate::layout_verdicts::{Types, types};
use crate::support::{PATIENCE, Relay, Site};

/// A table that is claimed by lease, with this id, topic and count of attempts.
fn table(site: &Site, topic: &str, attempts: &str) -> String {
    let Types { uuid, json, time, now, .. } = types(site);
    format!(
        "create table events (id {uuid} not null primary key, topic varchar(80) {topic}, payload {json} not null, \
         status varchar(20) not null default 'pending', attempts {attempts} not null default 0, \
         next_attempt_at {time} not null default {now}, locked_until {time})"
    )
}

async fn guessed(site: &Site) -> Result<String> {
    let guessed = site.postrider(&["layout", "guess", "--table", "events", "--name", "own"]).await?.succeeded()?.out;
    let file = configuration(site, &format!("layout = \"own\"\ntable = \"events\"\n{guessed}"))?;
    site.postrider(&["migrate", "--config", &file]).await?.succeeded()?;
    Ok(file)
}

#[tokio::test]
async fn a_layout_is_guessed_beside_postrider_s_own_outbox() -> Result<()> {
    for site in Site::each().await? {
        site.postrider(&["migrate"]).await?.succeeded()?;
        site.source().await?.run(&table(&site, "not null", "int")).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?;
        ensure!(guessed.code() == 0 && guessed.out.contains("claim = \"lease\""), "{}: {guessed:?}", site.url);
    }
    Ok(())
}

#[tokio::test]
async fn a_count_of_attempts_without_a_sign_is_read() -> Result<()> {
    for kind in ["int unsigned", "smallint unsigned", "bigint unsigned", "bigint", "tinyint"] {
        let site = Site::mariadb().await?;
        let source = site.source().await?;
        let whole =
            table(&site, "not null", kind).replace("locked_until", &format!("max_attempts {kind}, locked_until"));
        source.run(&whole).await?;
        source
            .run("insert into events (id, topic, payload, attempts) values ('00000000-0000-0000-0000-000000000001', 't', '{}', 1)")
            .await?;
        let file = guessed(&site).await?;
        let relay = Relay::with_config(file.as_ref()).await?;
        let sent = "select count(*) from events where status = 'delivered' and attempts = 2";
        within(PATIENCE, "sent", || async { source.count(sent).await.is_ok_and(|count| count == 1) })
            .await
            .with_context(|| format!("{kind}: {}", relay.log()))?;
        let status = site.postrider(&["status", "--config", &file, "--json"]).await?.succeeded()?;
        ensure!(status.out.contains("\"delivered\":1"), "{kind}: {status:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_table_without_rowids_is_refused() -> Result<()> {
    let site = Site::sqlite().await?;
    site.source().await?.run(&format!("{} without rowid", table(&site, "not null", "int"))).await?;
    let said = "is without rowids, by which rows are found";
    let guessed = site.postrider(&["layout", "guess", "--table", "events", "--name", "own"]).await?.failed_with(1)?.out;
    ensure!(guessed.contains(said), "{guessed}");
    let file = configuration(&site, &format!("layout = \"own\"\ntable = \"events\"\n{guessed}"))?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
    ensure!(checked.contains(said), "{checked}");
    let ran = site.postrider(&["run", "--config", &file]).await?.failed_with(1)?;
    ensure!(ran.err.contains(said), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn a_column_that_the_database_computes_keeps_enqueue_from_writing() -> Result<()> {
    for site in Site::each().await? {
        let computed = ["stored", "virtual"];
        for how in computed.iter().filter(|how| **how == "stored" || !site.url.starts_with("postgres")) {
            let topic = format!("generated always as (cast('orders' as char(80))) {how}");
            site.source().await?.run(&table(&site, &topic, "int")).await?;
            let file = guessed(&site).await?;
            let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
            let said = "enqueue cannot write rows: the database computes the column \"topic\"";
            ensure!(checked.contains(said) && !checked.contains("enqueue can write"), "{}: {checked}", site.url);
            site.postrider(&["enqueue", "--config", &file, "-n", "events", "-t", "orders", "1"])
                .await?
                .failed_with(1)?;
            site.source().await?.run("drop table events").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_table_that_a_crash_empties_is_told() -> Result<()> {
    let site = Site::postgres().await?;
    site.source().await?.run(&table(&site, "not null", "int").replace("create table", "create unlogged table")).await?;
    let file = guessed(&site).await?;
    let said = "is unlogged: a crash of the server empties it";
    for command in [&["layout", "check"][..], &["doctor"]] {
        let told = site.postrider(&[command, &["--config", &file]].concat()).await?.out;
        ensure!(told.contains(said) && told.contains("set logged"), "{told}");
    }
    site.postrider(&["migrate"]).await?.succeeded()?;
    ensure!(!site.postrider(&["doctor"]).await?.out.contains(said));
    site.source().await?.run("alter table outbox_messages set unlogged").await?;
    let told = site.postrider(&["doctor"]).await?.out;
    ensure!(told.contains(said), "{told}");
    Ok(())
}

#[tokio::test]
async fn nothing_is_added_to_a_table_whose_columns_cannot_be_used() -> Result<()> {
    for site in Site::each().await? {
        let Types { uuid, quote: q, .. } = types(&site);
        let payload = if q == '`' || site.url.starts_with("sqlite") { "blob" } else { "varchar(8000)" };
        let theirs = format!(
            "create table outboxevent (id {uuid} not null primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, \
             type varchar(255) not null, payload {payload})"
        );
        site.source().await?.run(&theirs).await?;
        let refused = site.postrider(&["migrate", "--layout", "debezium_keep"]).await?.failed_with(1)?;
        ensure!(refused.err.contains("\"payload\", which the layout has for payload, is"), "{}: {refused:?}", site.url);
        let added = site.source().await?.count("select count(status) from outboxevent").await;
        ensure!(added.is_err(), "{}: {added:?}", site.url);
    }
    Ok(())
}
