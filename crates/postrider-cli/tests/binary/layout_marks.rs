//! Columns that say, or may say, which rows have been sent: no relay is to publish a whole history again, and delete it.

use anyhow::{Result, ensure};

use crate::layout::configuration;
use crate::layout_verdicts::{Types, types};
use crate::support::Site;

/// A layout that looks at nothing but the id: every row that is there waits.
const BARE: &str = "layout = \"own\"\ntable = \"events\"\n[layout.own]\nid = \"id\"\nnamespace = { fixed = \"n\" }\ntopic = \"topic\"\npayload = \"payload\"\nclaim = \"row_lock\"\n";

/// A table with one more column, and a row that was sent by what that column says.
async fn with_column(site: &Site, column: &str) -> Result<()> {
    let (source, Types { uuid, json, .. }) = (site.source().await?, types(site));
    source
        .run(&format!(
            "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, {column})"
        ))
        .await
}

#[tokio::test]
async fn a_mark_of_sent_rows_is_known_whatever_its_type_and_its_name() -> Result<()> {
    for column in [
        "processed char(1) not null default 'N'",
        "processed varchar(3)",
        "processed text default 'no'",
        "processed_flag boolean",
        "exported boolean not null default false",
        "\"isForwarded\" smallint not null default 0",
        "sent_to_kafka boolean",
        "sent bit(1) not null default b'0'",
        "published_at bigint",
        "sent_on date",
    ] {
        let site = Site::postgres().await?;
        with_column(&site, column).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
        let name = column.split(' ').next().unwrap_or_default().trim_matches('"');
        ensure!(guessed.contains(&format!("{name:?} says which rows have been sent")), "{column}: {guessed}");
        ensure!(guessed.contains("add column delivered_at timestamptz"), "{column}: {guessed}");
        let file = configuration(&site, BARE)?;
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
        ensure!(checked.contains(&format!("{name:?} looks as if it said which rows")), "{column}: {checked}");
        let ran = site.postrider(&["run", "--config", &file]).await?.failed_with(1)?;
        ensure!(ran.err.contains("every row would be published, and deleted"), "{column}: {ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_flag_that_nothing_is_known_of_is_told_by_a_guess_and_by_a_check() -> Result<()> {
    for column in [
        "erledigt boolean not null default false",
        "flag char(1) not null",
        "x varchar(8) default 'N'",
        "phase smallint not null default 0",
        "step varchar(80) not null default 'a' check (step in ('a', 'b'))",
        "erledigt timestamptz",
    ] {
        let site = Site::postgres().await?;
        with_column(&site, column).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
        let name = column.split(' ').next().unwrap_or_default();
        ensure!(guessed.contains(&format!("{name:?} may say which rows have been sent")), "{column}: {guessed}");
        let file = configuration(&site, BARE)?;
        // Whoever knows that it says something else can go on.
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
        ensure!(
            checked.contains(&format!("the column {name:?} may say which rows have been sent")),
            "{column}: {checked}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_column_that_says_nothing_of_what_was_sent_is_no_reason_to_fail() -> Result<()> {
    for column in [
        "tenant_id uuid",
        "region text",
        "comment varchar(200) default 'none'",
        "currency char(3) not null",
        "version int not null default 1",
        "sent_by varchar(80) not null",
        "next_attempt_at timestamptz",
        "created_at timestamptz",
    ] {
        let site = Site::postgres().await?;
        with_column(&site, column).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?;
        ensure!(guessed.code() == 0, "{column}: {guessed:?}");
        let file = configuration(&site, BARE)?;
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
        ensure!(!checked.contains("which rows have been sent"), "{column}: {checked}");
    }
    Ok(())
}

/// What a lease needs is told to be added there, which must not make the rows wait again that a flag says were sent.
#[tokio::test]
async fn a_flag_comes_before_what_a_lease_lacks() -> Result<()> {
    for site in [Site::mariadb().await?, Site::sqlite().await?] {
        for (column, says) in [
            ("processed char(1) not null default 'N'", "says"),
            ("exported boolean not null default false", "says"),
            ("erledigt boolean not null default false", "may say"),
        ] {
            with_column(&site, column).await?;
            let name = column.split(' ').next().unwrap_or_default();
            let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
            ensure!(guessed.contains(&format!("{name:?} {says} which rows have been sent")), "{}: {guessed}", site.url);
            // Only whoever knows that it says something else is to add what a lease needs.
            ensure!(guessed.contains("add column status") == (says == "may say"), "{}: {guessed}", site.url);
            site.source().await?.run("drop table events").await?;
        }
    }
    Ok(())
}

/// A time of sending is gone by, and a status beside it says of rows without that time that they were sent, too.
#[tokio::test]
async fn a_status_that_is_not_gone_by_is_told_beside_a_time_of_sending() -> Result<()> {
    for status in ["status smallint not null default 0", "status varchar(20) not null default 'NEW'"] {
        let site = Site::postgres().await?;
        with_column(&site, &format!("{status}, sent_at timestamptz")).await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
        ensure!(guessed.contains("\"status\" says which rows have been sent"), "{guessed}");
        let file = configuration(&site, &format!("{BARE}delivered_at = \"sent_at\"\n"))?;
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
        ensure!(checked.contains("the column \"status\" looks as if it said which rows have been sent"), "{checked}");
        let ran = site.postrider(&["run", "--config", &file]).await?.failed_with(1)?;
        ensure!(ran.err.contains("\"status\" looks as if it said"), "{ran:?}");
        // Whoever knows better says that it is something else.
        let kind = if status.contains("smallint") { "{ column = \"status\", type = \"int2\" }" } else { "\"status\"" };
        let known = format!("{BARE}delivered_at = \"sent_at\"\nfields = {{ status = {kind} }}\n");
        let file = configuration(&site, &known)?;
        site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?;
    }
    Ok(())
}
