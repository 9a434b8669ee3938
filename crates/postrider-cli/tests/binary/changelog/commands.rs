//! The operator's commands for the changelog.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use testkit::{Signal, within};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{arrive, config, consumer, numbers, start, write};
use crate::support::{PATIENCE, Receiver, Site};

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
