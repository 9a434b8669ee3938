//! The grants that `postrider migrate --print-grants` prints are enough for the binary, and no more.

use anyhow::{Context as _, Result};
use testkit::within;

use super::changelog::{config_of, write_at};
use super::support::{PATIENCE, Receiver, Relay, Site};

/// The address of the same database for another role.
fn as_role(url: &str, role: &str) -> Result<String> {
    let (scheme, rest) = url.split_once("://").context("an address")?;
    let (_, place) = rest.split_once('@').context("a user")?;
    Ok(format!("{scheme}://{role}:secret@{place}"))
}

#[tokio::test]
async fn s23_unprivileged_roles_run_the_relay_and_the_operators_commands() -> Result<()> {
    for site in [Site::postgres().await?, Site::mariadb().await?] {
        let site = site.migrated().await?;
        let source = site.source().await?;
        let mysql = site.url.starts_with("mysql");
        let suffix = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let roles = ["producer", "relay", "operator"].map(|role| format!("{role}_{suffix}"));
        for role in &roles {
            source
                .run(&match mysql {
                    true => format!("create user '{role}'@'%' identified by 'secret'"),
                    false => format!("create role {role} login password 'secret'"),
                })
                .await?;
        }
        let names = ["--producer", &roles[0], "--relay", &roles[1], "--operator", &roles[2]];
        let printed = site.postrider(&[&["migrate", "--print-grants"], &names[..]].concat()).await?.succeeded()?.out;
        source.run(&printed).await.with_context(|| printed.clone())?;

        let [producer, relay, operator] = [0, 1, 2].map(|at| as_role(&site.url, &roles[at]));
        let (producer, relay, operator) = (producer?, relay?, operator?);
        let run = |url: &str, arguments: &[&str]| {
            let (url, arguments): (String, Vec<String>) =
                (url.into(), arguments.iter().map(ToString::to_string).collect());
            let site = &site;
            async move {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                site.postrider_with(&arguments, &[("POSTRIDER_DATABASE_URL", &url)], None).await
            }
        };
        run(&producer, &["enqueue", "-n", "n", "-t", "t", "--dedupe-key", "1", "1"]).await?.succeeded()?;
        run(&producer, &["dead", "list"]).await?.failed_with(1)?;
        let up_to_date = run(&relay, &["migrate", "--dry-run"]).await?.succeeded()?;
        assert!(up_to_date.out.contains("up to date"), "{up_to_date:?}");
        let mut running = Relay::spawn(&["--sink", "stdout"], &[("POSTRIDER_DATABASE_URL", &relay)])?;
        let delivered = || async { site.count("delivered").await.is_ok_and(|rows| rows == 1) };
        within(PATIENCE, "a delivery", delivered).await.with_context(|| running.log())?;
        assert_eq!(running.stop().await?, 0);

        run(&producer, &["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
        source.run("update outbox_messages set status = 'dead' where status = 'pending'").await?;
        run(&operator, &["status"]).await?.succeeded()?;
        run(&operator, &["dead", "list"]).await?.succeeded()?;
        run(&operator, &["dead", "replay", "--all", "--yes"]).await?.succeeded()?;
        run(&operator, &["audit"]).await?.succeeded()?;
        run(&operator, &["purge", "--older-than", "0s", "--yes"]).await?.succeeded()?;
        let doctor = run(&operator, &["doctor", "--json"]).await?.json()?;
        let findings = doctor[0]["findings"].as_array().context("findings")?;
        // The servers of the tests run without fsync; nothing else may be wrong.
        let wrong = |finding: &&serde_json::Value| finding["severity"] == "problem" && finding["name"] != "durability";
        assert!(findings.len() > 8 && !findings.iter().any(|finding| wrong(&finding)), "{doctor:#}");
        run(&relay, &["audit"]).await?.failed_with(1)?;

        write_at(&producer, 0..3).await?;
        let receiver = Receiver::start().await?;
        let file = site.file("postrider.toml", &config_of(&relay, &receiver.url))?.display().to_string();
        let mut running = Relay::spawn(&["--config", &file], &[])?;
        receiver.until(3).await.with_context(|| running.log())?;
        assert_eq!(running.stop().await?, 0, "{}", running.log());
        let listed = run(&operator, &["changelog", "list", "--json"]).await?.succeeded()?;
        assert_eq!(listed.json_lines()?.len(), 3);
        let consumers = run(&operator, &["changelog", "consumers", "--json"]).await?.succeeded()?;
        assert_eq!(consumers.json()?["behind"], 0, "{consumers:?}");
        run(&operator, &["changelog", "reset", "route/trail", "--to", "beginning", "--yes"]).await?.succeeded()?;
        run(&operator, &["changelog", "forget", "route/trail", "--yes"]).await?.succeeded()?;
        assert_eq!((site.count("delivered").await?, site.count("pending").await?), (0, 1));
    }
    Ok(())
}
