//! Commands that are for one tenant leave the others alone.

use anyhow::Result;
use serde_json::{Value, json};
use uuid::Uuid;

use super::support::Site;

const OURS: &str = "0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d";
const THEIRS: &str = "0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2e";

/// Three dead messages: ours, theirs, nobody's. Answers their ids.
async fn three_dead(site: &Site) -> Result<[String; 3]> {
    let mut ids = Vec::new();
    for tenant in [&["--tenant", OURS][..], &["--tenant", THEIRS], &[]] {
        let arguments = [&["enqueue", "-n", "shop", "-t", "t", "1"][..], tenant].concat();
        ids.push(site.postrider(&arguments).await?.succeeded()?.out.trim().to_owned());
    }
    site.source().await?.run("update outbox_messages set status = 'dead', last_error = 'boom'").await?;
    Ok([ids.remove(0), ids.remove(0), ids.remove(0)])
}

fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().filter_map(|record| record["id"].as_str()).collect()
}

/// The same commands by `--tenant` and by a source that is for one tenant.
#[tokio::test]
async fn s08_commands_for_a_tenant_leave_the_others_alone() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let [ours, theirs, nobody_s] = three_dead(&site).await?;
        let text = format!(
            "[source.shop]\nurl = {:?}\ntenant = {OURS:?}\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n",
            site.url
        );
        let file = site.file("tenant.toml", &text)?.display().to_string();
        let by_option = ["--tenant", OURS];
        let by_source = ["--config", file.as_str()];
        for scope in [&by_option[..], &by_source] {
            let run = |arguments: &[&str]| {
                let arguments: Vec<String> = arguments.iter().chain(scope).map(|word| (*word).to_owned()).collect();
                let site = &site;
                async move {
                    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    site.postrider(&arguments).await
                }
            };
            let listed = run(&["dead", "list", "--json"]).await?.succeeded()?.json_lines()?;
            assert_eq!(ids(&listed), [ours.as_str()]);
            let status = run(&["status", "--json"]).await?.succeeded()?.json()?;
            assert_eq!(status["dead"], 1, "{status}");
            for other in [&theirs, &nobody_s] {
                run(&["dead", "show", other]).await?.failed_with(1)?;
                run(&["dead", "replay", other, "--yes"]).await?.failed_with(1)?;
                run(&["dead", "discard", other, "--yes"]).await?.failed_with(1)?;
            }
            run(&["dead", "show", &ours]).await?.succeeded()?;
            let dry = run(&["dead", "replay", "--error", "boom", "--json"]).await?.succeeded()?.json()?;
            assert_eq!(dry["matching"], 1, "{dry}");
            let dry = run(&["purge", "--state", "dead", "--older-than", "0s", "--json"]).await?.succeeded()?.json()?;
            assert_eq!(dry["matching"], 1, "{dry}");
        }
        let with_file = |arguments: &[&str]| -> Vec<String> {
            arguments.iter().chain(&by_source).map(|word| (*word).to_owned()).collect()
        };
        let run = |arguments: Vec<String>| {
            let site = &site;
            async move {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                site.postrider(&arguments).await
            }
        };
        let refused = run(with_file(&["dead", "list", "--tenant", THEIRS])).await?.failed_with(2)?;
        assert!(refused.err.contains(&format!("is for tenant {OURS} only")), "{refused:?}");
        run(with_file(&["enqueue", "-n", "shop", "-t", "t", "1", "--tenant", THEIRS])).await?.failed_with(2)?;
        for command in [&["changelog", "list"][..], &["changelog", "consumers"], &["changelog", "forget", "trail"]] {
            let refused = run(with_file(command)).await?.failed_with(2)?;
            assert!(refused.err.contains("entries of the changelog have no tenant"), "{refused:?}");
        }
        let nil = site.postrider(&["dead", "list", "--tenant", "00000000-0000-0000-0000-000000000000"]).await?;
        assert!(nil.failed_with(2)?.err.contains("stands for no tenant"));
        let new = run(with_file(&["enqueue", "-n", "shop", "-t", "new", "1"])).await?.succeeded()?;
        let shown = run(with_file(&["dead", "show", new.out.trim(), "--json"])).await?.succeeded()?.json()?;
        assert_eq!(shown["tenant"], json!(OURS));
        let replayed = run(with_file(&["dead", "replay", "--all", "--yes", "--json"])).await?.succeeded()?.json()?;
        assert_eq!(replayed["replayed"], 1);
        assert_eq!(site.count("dead").await?, 2, "those of the others");
        site.source().await?.run("update outbox_messages set status = 'dead'").await?;
        let discarded = run(with_file(&["dead", "discard", "--all", "--yes", "--json"])).await?.succeeded()?.json()?;
        assert_eq!(discarded["discarded"], 2);
        let purge = ["purge", "--state", "dead", "--older-than", "0s", "--yes", "--json"];
        assert_eq!(run(with_file(&purge)).await?.succeeded()?.json()?["deleted"], 0);
        assert_eq!(site.count("dead").await?, 2, "those of the others");
        // What was asked for all tenants names messages of others.
        site.postrider(&["dead", "replay", "--all", "--yes"]).await?.succeeded()?;
        let all = site.postrider(&["audit", "--json"]).await?.succeeded()?.json_lines()?;
        let of_tenant = run(with_file(&["audit", "--json"])).await?.succeeded()?.json_lines()?;
        assert_eq!((all.len(), of_tenant.len()), (3, 2), "{all:#?}");
        assert!(of_tenant.iter().all(|entry| entry["asked"]["tenant"] == OURS), "{of_tenant:#?}");
        assert_eq!(
            run(with_file(&["audit", "--json", "--limit", "1"])).await?.succeeded()?.json_lines()?,
            of_tenant[..1]
        );
    }
    Ok(())
}

#[tokio::test]
async fn s08_a_tenant_is_refused_where_the_table_has_none() -> Result<()> {
    let site = Site::postgres().await?;
    let layout = ["--layout", "talkie"];
    let run = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().chain(&layout).map(|word| (*word).to_owned()).collect();
        let site = &site;
        async move { site.postrider(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    run(&["migrate"]).await?.succeeded()?;
    let tenant = Uuid::new_v4().to_string();
    for command in [
        &["dead", "list"][..],
        &["dead", "show", &tenant],
        &["dead", "replay"],
        &["dead", "discard", "--yes"],
        &["purge", "--state", "dead", "--older-than", "0s"],
        &["status", "--json"],
        &["status"],
        &["enqueue", "-n", "calls", "-t", "ended", "1"],
    ] {
        let ran = run(&[command, &["--tenant", &tenant]].concat()).await?.failed_with(2)?;
        assert!(ran.all().contains("cannot do this: messages have no tenant"), "{ran:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn s08_limits_of_the_nil_uuid_are_refused() -> Result<()> {
    let site = Site::sqlite().await?;
    let text = format!(
        "[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n[source.shop]\nurl = \"{}\"\n\
         [source.shop.tenant_limits.tenants.\"{}\"]\nrate = 5\n",
        site.url,
        Uuid::nil()
    );
    let file = site.file("nil.toml", &text)?.display().to_string();
    let refused = site.postrider(&["config", "check", "--config", &file]).await?.failed_with(2)?;
    assert!(refused.all().contains("the nil UUID stands for no tenant"), "{refused:#?}");
    Ok(())
}
