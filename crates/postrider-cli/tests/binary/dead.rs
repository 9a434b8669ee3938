//! The life of a dead letter, from failure to replay.

use anyhow::{Context as _, Result};
use serde_json::json;
use std::time::Duration;
use testkit::within;

use super::support::{PATIENCE, Receiver, Relay, Site, config};

#[tokio::test]
async fn s2_20_a_message_dies_is_looked_at_mended_and_replayed() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        receiver.answer(422, Duration::ZERO);
        let file = site.file("postrider.toml", &config(&site.url, &receiver.url, ""))?;
        let mut relay = Relay::with_config(&file).await?;
        let payload = r#"{"order": "canary-payload"}"#;
        let id =
            site.postrider(&["enqueue", "-n", "shop", "-t", "order.placed", "-k", "7", payload]).await?.succeeded()?;
        let id = id.out.trim();
        let other = site.postrider(&["enqueue", "-n", "shop", "-t", "other", "1"]).await?.succeeded()?;
        let died = || async { site.count("dead").await.is_ok_and(|dead| dead == 2) };
        within(PATIENCE, "two deaths", died).await.with_context(|| relay.log())?;

        let listed =
            site.postrider(&["dead", "list", "--json", "--topic", "order.placed"]).await?.succeeded()?.json_lines()?;
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0]["id"], &listed[0]["attempts"]), (&json!(id), &json!(1)));
        assert!(listed[0]["last_error"].as_str().is_some_and(|error| error.contains("422")), "{listed:?}");
        assert!(listed[0].get("payload").is_none(), "a list shows no payloads");
        let table =
            site.postrider(&["dead", "list", "--error", "422", "--since", "1h", "--key", "7"]).await?.succeeded()?;
        assert!(table.out.contains(id) && !table.out.contains("canary"), "{table:?}");
        assert!(!table.out.contains(other.out.trim()), "{table:?}");
        let shown = site.postrider(&["dead", "show", id]).await?.succeeded()?.out;
        assert!(shown.contains("canary-payload") && shown.contains("dead") && shown.contains("never"), "{shown}");
        let hidden = site.postrider(&["dead", "show", id, "--no-payload"]).await?.succeeded()?.out;
        assert!(!hidden.contains("canary-payload"), "{hidden}");

        let dry = site.postrider(&["dead", "replay", "--topic", "order.placed"]).await?.succeeded()?;
        assert!(dry.out.contains("1 message would be replayed; nothing was changed. Add --yes"), "{dry:?}");
        assert_eq!(site.count("dead").await?, 2);
        receiver.answer(204, Duration::ZERO);
        let replay = ["dead", "replay", id, "--yes", "--as", "night shift", "--json"];
        assert_eq!(site.postrider(&replay).await?.succeeded()?.json()?["replayed"], 1);
        let delivered = || async { site.count("delivered").await.is_ok_and(|rows| rows == 1) };
        within(PATIENCE, "the delivery", delivered).await.with_context(|| relay.log())?;
        let arrivals = receiver.arrivals().clone();
        let last = arrivals.iter().rfind(|arrival| arrival.header("ce-id") == id).context("it arrived")?;
        assert_eq!(last.body, br#"{"order": "canary-payload"}"#.as_slice(), "the same bytes as before");
        assert_eq!(last.header("ce-attempt"), "1", "attempts begin anew");
        assert_eq!(last.header("ce-replayed"), "1", "and it is marked: {last:?}");

        let discard = ["dead", "discard", "--all", "--yes"];
        let done = site.postrider(&discard).await?.succeeded()?;
        assert_eq!(done.out, "discarded 1 message\n");
        assert_eq!(site.count("dead").await?, 0);

        let audit = site.postrider(&["audit", "--json"]).await?.succeeded()?.json_lines()?;
        let actions: Vec<&str> = audit.iter().filter_map(|entry| entry["action"].as_str()).collect();
        assert_eq!(actions, ["discard", "replay"], "the newest first");
        assert_eq!((&audit[1]["who"], &audit[1]["ids"]), (&json!("night shift"), &json!([id])));
        assert!(audit[0]["who"].as_str().is_some_and(|who| who.starts_with("tester@")), "{audit:?}");
        let newest = audit[0]["number"].to_string();
        let older = site.postrider(&["audit", "--json", "--before", &newest]).await?.succeeded()?.json_lines()?;
        assert_eq!(older, audit[1..]);
        let table = site.postrider(&["audit"]).await?.succeeded()?.out;
        assert!(table.contains("night shift"), "{table}");
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn s24_a_replay_is_bounded_by_rate_limit_and_confirmation() -> Result<()> {
    let site = Site::postgres().await?.migrated().await?;
    let source = site.source().await?;
    let lines: String = (0..60).map(|n| format!("{n}\n")).collect();
    site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
    source.run("update outbox_messages set status = 'dead', last_error = 'Boom 50%'").await?;

    site.postrider(&["dead", "replay", "--error", "boom 50%", "--confirm", "59"]).await?.failed_with(1)?;
    assert_eq!(site.count("dead").await?, 60);
    let none = site.postrider(&["dead", "replay", "--error", "b_om", "--yes", "--json"]).await?.succeeded()?.json()?;
    assert_eq!(none["replayed"], 0, "no wildcards");
    let some =
        site.postrider(&["dead", "replay", "--all", "--limit", "7", "--yes", "--json"]).await?.succeeded()?.json()?;
    assert_eq!(some["replayed"], 7);

    let begun = std::time::Instant::now();
    let rest = ["dead", "replay", "--error", "boom", "--confirm", "53", "--rate", "40", "--json"];
    assert_eq!(site.postrider(&rest).await?.succeeded()?.json()?["replayed"], 53);
    assert!(begun.elapsed() > Duration::from_secs(1), "53 messages at 40 per second");
    assert_eq!((site.count("dead").await?, site.count("pending").await?), (0, 60));
    Ok(())
}
