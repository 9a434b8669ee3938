//! What is said of the words of a status: whether the table takes them, which of them is meant, and who may look.

use anyhow::{Context as _, Result, ensure};

use crate::layout::configuration;
use crate::layout_verdicts::{Types, types};
use crate::support::Site;

/// A table that is claimed by lease, with this status.
async fn with_status(site: &Site, status: &str) -> Result<()> {
    let (source, Types { uuid, json, time, now, .. }) = (site.source().await?, types(site));
    source
        .run(&format!(
            "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, {status}, \
             attempts int not null default 0, next_attempt_at {time} not null default {now}, locked_until {time})"
        ))
        .await
}

const LEASED: &str = "layout = \"own\"\ntable = \"events\"\n[layout.own]\nid = \"id\"\nnamespace = { fixed = \"n\" }\ntopic = \"topic\"\npayload = \"payload\"\nclaim = \"lease\"\n\
    status = \"status\"\nwords = { pending = \"pending\", processing = \"processing\", delivered = \"delivered\", dead = \"dead\" }\nattempts = \"attempts\"\nnext_attempt_at = \"next_attempt_at\"\nlocked_until = \"locked_until\"\n";

const TAKES: &str = "the status column takes every word of the layout";

/// A check says it, no relay starts, and no guess proposes it.
async fn is_refused(site: &Site, said: &str) -> Result<()> {
    site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?;
    let file = configuration(site, LEASED)?;
    // Elsewhere a relay needs what this adds; it adds nothing to the table.
    site.postrider(&["migrate", "--config", &file]).await?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
    ensure!(checked.contains(said) && !checked.contains(TAKES), "{}: {checked}", site.url);
    let ran = site.postrider(&["run", "--config", &file]).await?.failed_with(1)?;
    ensure!(ran.err.contains(said), "{}: {ran:?}", site.url);
    Ok(())
}

#[tokio::test]
async fn a_word_that_the_domain_of_the_status_does_not_allow_is_told() -> Result<()> {
    let site = Site::postgres().await?;
    let domain = "create domain state as text check (value in ('pending', 'processing', 'delivered'))";
    site.source().await?.run(domain).await?;
    with_status(&site, "status state not null default 'pending'").await?;
    is_refused(&site, "does not allow the word \"dead\" of the layout; it allows pending, processing, delivered")
        .await?;
    // What the domain allows and a check of the table does not, is not allowed either.
    let site = Site::postgres().await?;
    let domain = "create domain state as text check (value in ('pending', 'processing', 'delivered', 'dead'))";
    site.source().await?.run(domain).await?;
    with_status(
        &site,
        "status state not null default 'pending' check (status in ('pending', 'processing', 'dead', 'x'))",
    )
    .await?;
    is_refused(&site, "does not allow the word \"delivered\" of the layout; it allows pending, processing, dead").await
}

#[tokio::test]
async fn a_word_that_is_too_long_for_the_status_is_told() -> Result<()> {
    let said = "takes 8 characters, and the word \"processing\" of the layout has 10";
    for site in [Site::postgres().await?, Site::mariadb().await?] {
        with_status(&site, "status varchar(8) not null default 'pending'").await?;
        is_refused(&site, said).await?;
    }
    let site = Site::postgres().await?;
    site.source().await?.run("create domain state as varchar(8)").await?;
    with_status(&site, "status state not null default 'pending'").await?;
    is_refused(&site, said).await
}

#[tokio::test]
async fn a_column_that_the_database_computes_is_nothing_that_a_relay_can_write() -> Result<()> {
    for site in Site::each().await? {
        with_status(&site, "status varchar(20) generated always as (cast('pending' as char(20))) stored").await?;
        is_refused(&site, "\"status\", which the layout has for status, is computed by the database").await?;
        if !site.url.starts_with("postgres") {
            site.source().await?.run("drop table events").await?;
            with_status(&site, "status varchar(20) generated always as (cast('pending' as char(20))) virtual").await?;
            is_refused(&site, "\"status\", which the layout has for status, is computed by the database").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_guess_says_what_it_takes_failed_for() -> Result<()> {
    for site in Site::each().await? {
        let listed = "status varchar(20) not null default 'pending' check (status in ('pending', 'processing', 'sent', 'failed'))";
        with_status(&site, listed).await?;
        let guess = ["layout", "guess", "--table", "events"];
        let guessed = site.postrider(&guess).await?.succeeded()?.out;
        ensure!(guessed.contains("dead = \"failed\""), "{guessed}");
        ensure!(guessed.contains("words: \"failed\" is taken for rows that were given up"), "{}: {guessed}", site.url);
        site.source().await?.run("drop table events").await?;
        with_status(&site, "status varchar(20) not null default 'pending'").await?;
        let row = "insert into events (id, topic, payload, status) values ('00000000-0000-0000-0000-000000000001', 't', '{}', 'failed')";
        site.source().await?.run(row).await?;
        let guessed = site.postrider(&guess).await?.succeeded()?.out;
        ensure!(guessed.contains("failed = \"failed\""), "{guessed}");
        ensure!(
            guessed.contains("words: \"failed\" is taken for rows that wait for their next attempt"),
            "{}: {guessed}",
            site.url
        );
    }
    Ok(())
}

#[tokio::test]
async fn one_odd_row_is_not_taken_for_what_new_rows_get() -> Result<()> {
    for site in Site::each().await? {
        with_status(&site, "status varchar(20) not null default 'pending'").await?;
        for (number, word) in ["PENDING", "pending", "new"].iter().enumerate() {
            let row = format!(
                "insert into events (id, topic, payload, status) values ('00000000-0000-0000-0000-00000000000{number}', 't', '{{}}', '{word}')"
            );
            site.source().await?.run(&row).await?;
        }
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.succeeded()?.out;
        ensure!(guessed.contains("pending = \"pending\""), "{}: {guessed}", site.url);
    }
    Ok(())
}

#[tokio::test]
async fn a_guess_by_a_role_that_may_not_read_says_so() -> Result<()> {
    let site = Site::postgres().await?;
    with_status(&site, "status varchar(20) not null default 'pending'").await?;
    site.source().await?.run("create role never_reads login").await?;
    let (_, place) = site.url.split_once('@').context("a host")?;
    let url = format!("postgres://never_reads@{place}");
    let guessed = site.postrider(&["layout", "guess", "--url", &url, "--table", "events"]).await?.out;
    let said = "the role never_reads may not read \"status\", so no row was looked at";
    ensure!(guessed.contains(said), "{guessed}");
    ensure!(!guessed.contains("no row of the sample"), "{guessed}");
    Ok(())
}
