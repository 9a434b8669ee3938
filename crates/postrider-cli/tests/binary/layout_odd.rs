//! What `postrider layout check` and `layout guess` say of odd tables: views and parts, keys of another kind, columns that are not there.

use anyhow::{Context as _, Result, ensure};

use crate::layout::configuration;
use crate::layout_verdicts::{Types, types};
use crate::support::Site;

/// The SQL that a finding says to run.
fn to_run(text: &str) -> Result<&str> {
    let after = text.split_once("run: ").context("what to run")?.1;
    let line = after.lines().next().unwrap_or_default();
    let ends = ["; and have its readers", ", then guess again"];
    Ok(ends.iter().find_map(|end| line.split_once(end)).map_or(line, |(sql, _)| sql))
}

#[tokio::test]
async fn what_is_no_plain_table_is_told_before_a_relay_is_started_on_it() -> Result<()> {
    for site in Site::each().await? {
        let source = site.source().await?;
        site.postrider(&["migrate", "--layout", "talkie"]).await?.succeeded()?;
        source.run("create view shown as select * from outbox").await?;
        let mut odd = vec![("shown", "no table")];
        if site.url.starts_with("postgres") {
            source
                .run("create table parts (like outbox including defaults) partition by hash (id); create table child () inherits (outbox)")
                .await?;
            odd.extend([("parts", "partitioned"), ("outbox", "inherited from")]);
        }
        if site.url.starts_with("mysql") {
            source.run("create table without_locks engine = MyISAM as select * from outbox").await?;
            source.run("create table keyless like outbox").await?;
            source.run("alter table keyless drop primary key, add unique key (id)").await?;
            odd.extend([("without_locks", "of the engine MyISAM"), ("keyless", "without a primary key")]);
        }
        for (table, why) in odd {
            let arguments = ["layout", "check", "--layout", "talkie", "--table", table];
            let checked = site.postrider(&arguments).await?.failed_with(1)?.out;
            ensure!(checked.contains(&format!(" is {why}")), "{}: {table}: {checked}", site.url);
            let guessed = site.postrider(&["layout", "guess", "--table", table]).await?.failed_with(1)?.out;
            ensure!(guessed.contains(&format!(" is {why}")), "{}: {table}: {guessed}", site.url);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_guess_that_finds_no_id_or_no_payload_fails() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { json, uuid, time, .. }) = (site.source().await?, types(&site));
        let sent = format!("sent_at {time}");
        source
            .run(&format!("create table nameless (topic varchar(80) not null, payload {json} not null, {sent})"))
            .await?;
        source
            .run(&format!("create table empty_handed (id {uuid} not null primary key, topic varchar(80), {sent})"))
            .await?;
        // On MySQL a table without a primary key is refused for that, whatever else it lacks.
        let no_id = if site.url.starts_with("mysql") { "`nameless` is without a primary key" } else { "id: no column" };
        for (table, lacking) in [("nameless", no_id), ("empty_handed", "payload: no column")] {
            let guessed = site.postrider(&["layout", "guess", "--table", table]).await?.failed_with(1)?.out;
            ensure!(guessed.contains(&format!("# It cannot be used yet: {lacking}")), "{}: {guessed}", site.url);
        }
    }
    Ok(())
}

/// A number as the primary key, and a UUID beside it: the usual table on MySQL.
#[tokio::test]
async fn a_uuid_beside_a_number_is_the_id_where_numbers_are_none() -> Result<()> {
    for site in [Site::mariadb().await?, Site::sqlite().await?] {
        let (source, Types { json, uuid, time, now, .. }) = (site.source().await?, types(&site));
        let is_mysql = site.url.starts_with("mysql");
        let number = if is_mysql { "bigint not null auto_increment primary key" } else { "integer primary key" };
        source
            .run(&format!(
                "create table events (no {number}, event_id {uuid} not null unique, topic varchar(80) not null, payload {json} not null, \
                 status varchar(20) not null default 'NEW', attempts int not null default 0, next_attempt_at {time} not null default {now}, \
                 locked_until {time}, created_at {time} not null default {now})"
            ))
            .await?;
        let guessed =
            site.postrider(&["layout", "guess", "--table", "events", "--name", "own"]).await?.succeeded()?.out;
        ensure!(guessed.contains("id = \"event_id\"") && guessed.contains("pending = \"NEW\""), "{guessed}");
        let file = configuration(&site, &format!("layout = \"own\"\ntable = \"events\"\n{guessed}"))?;
        site.postrider(&["migrate", "--config", &file]).await?.succeeded()?;
        let told = "is not the primary key: every claim and settle reads all rows";
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
        ensure!(checked.contains(told) == is_mysql, "{checked}");
        if is_mysql {
            let alter = checked.lines().find_map(|line| line.split_once("run: alter")).context("what to run")?.1;
            source.run(&format!("alter{alter}")).await?;
            let checked = site.postrider(&["layout", "check", "--config", &file]).await?.succeeded()?.out;
            ensure!(!checked.contains(told), "{checked}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_word_that_new_rows_get_is_known_before_there_is_a_row() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { json, uuid, time, now, .. }) = (site.source().await?, types(&site));
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, \
                 status varchar(20) not null default 'ARRIVED', attempts int not null default 0, next_attempt_at {time} not null default {now}, \
                 locked_until {time})"
            ))
            .await?;
        let guess = ["layout", "guess", "--table", "events", "--name", "own"];
        let guessed = site.postrider(&guess).await?.succeeded()?.out;
        ensure!(guessed.contains("pending = \"ARRIVED\""), "{}: {guessed}", site.url);
        let other = guessed.replace("ARRIVED", "pending");
        let file = configuration(&site, &format!("layout = \"own\"\ntable = \"events\"\n{other}"))?;
        let checked = site.postrider(&["layout", "check", "--config", &file]).await?.out;
        ensure!(checked.contains("\"ARRIVED\" are neither claimed nor counted"), "{}: {checked}", site.url);
    }
    Ok(())
}

#[tokio::test]
async fn a_mark_that_is_a_number_is_told_with_sql_that_runs() -> Result<()> {
    for site in Site::each().await? {
        let (source, Types { json, uuid, .. }) = (site.source().await?, types(&site));
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, processed smallint not null default 0)"
            ))
            .await?;
        source
            .run("insert into events values ('00000000-0000-0000-0000-000000000001', 't', '{}', 1), ('00000000-0000-0000-0000-000000000002', 't', '{}', 0)")
            .await?;
        let guessed = site.postrider(&["layout", "guess", "--table", "events"]).await?.failed_with(1)?.out;
        source.run(to_run(&guessed)?).await.with_context(|| guessed.clone())?;
        ensure!(source.count("select count(*) from events where delivered_at is not null").await? == 1, "{}", site.url);
    }
    Ok(())
}

/// A time says which rows were sent, and the columns that a lease needs are added: the rows must not wait again by that.
#[tokio::test]
async fn what_is_told_to_be_added_makes_no_row_wait_again_that_was_sent() -> Result<()> {
    for site in [Site::mariadb().await?, Site::sqlite().await?] {
        let (source, Types { json, uuid, time, .. }) = (site.source().await?, types(&site));
        // The due time has a type that cannot be used, so its name is not free.
        source
            .run(&format!(
                "create table events (id {uuid} not null primary key, topic varchar(80) not null, payload {json} not null, \
                 next_attempt_at varchar(40), published_at {time})"
            ))
            .await?;
        let sent = if site.url.starts_with("mysql") { "utc_timestamp(6)" } else { "1700000000000000" };
        source
            .run(&format!(
                "insert into events values ('00000000-0000-0000-0000-000000000001', 't', '{{}}', '', {sent}), \
                 ('00000000-0000-0000-0000-000000000002', 't', '{{}}', '', null)"
            ))
            .await?;
        let guess = ["layout", "guess", "--table", "events", "--name", "own"];
        let guessed = site.postrider(&guess).await?.failed_with(1)?.out;
        source.run(to_run(&guessed)?).await.with_context(|| guessed.clone())?;
        let waits = "select count(*) from events where status = 'pending' and id like '%2'";
        ensure!(
            source.count(waits).await? == 1
                && source.count("select count(*) from events where status = 'delivered'").await? == 1
        );
        let guessed = site.postrider(&guess).await?.succeeded()?.out;
        ensure!(
            guessed.contains("delivered_at = \"published_at\"") && guessed.contains("next_attempt_at = \"due_at\""),
            "{guessed}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_time_that_may_say_what_was_sent_is_not_passed_over() -> Result<()> {
    let site = Site::postgres().await?;
    let table = |name: &str, time: &str| {
        format!(
            "create table {name} (id uuid primary key, event_type text not null, serialized_event text not null, publication_date timestamptz not null, {time})"
        )
    };
    let source = site.source().await?;
    source.run(&table("known", "completion_date timestamptz")).await?;
    let guessed = site.postrider(&["layout", "guess", "--table", "known"]).await?.succeeded()?.out;
    ensure!(
        guessed.contains("delivered_at = \"completion_date\"") && guessed.contains("payload = \"serialized_event\""),
        "{guessed}"
    );
    // Who leaves it out of a layout would have all of it published again, and deleted.
    let without: String =
        guessed.lines().filter(|line| !line.starts_with("delivered_at")).map(|line| format!("{line}\n")).collect();
    let file = configuration(&site, &format!("layout = \"known\"\ntable = \"known\"\n{without}"))?;
    let checked = site.postrider(&["layout", "check", "--config", &file]).await?.failed_with(1)?.out;
    ensure!(checked.contains("every row would be published, and deleted"), "{checked}");
    source.run(&table("unknown", "erledigt timestamptz")).await?;
    let guessed = site.postrider(&["layout", "guess", "--table", "unknown"]).await?.failed_with(1)?.out;
    ensure!(guessed.contains("\"erledigt\" may say which rows have been sent"), "{guessed}");
    // A time that every row has says nothing.
    source.run(&table("complete", "sent_at timestamptz not null default now()")).await?;
    let guessed = site.postrider(&["layout", "guess", "--table", "complete"]).await?.succeeded()?.out;
    ensure!(!guessed.contains("delivered_at ="), "{guessed}");
    Ok(())
}
