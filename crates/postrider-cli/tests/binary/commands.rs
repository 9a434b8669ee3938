//! The operator's commands on each database.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::support::{PATIENCE, Relay, Site, postrider};
use testkit::within;

#[tokio::test]
async fn s2_24_s3_28_a_first_event_needs_three_commands_and_no_file() -> Result<()> {
    for site in Site::each().await? {
        let before = site.postrider(&["run", "--sink", "stdout"]).await?.failed_with(1)?;
        assert!(before.err.contains("postrider migrate"), "{before:?}");

        site.postrider(&["migrate"]).await?.succeeded()?;
        let id =
            site.postrider(&["enqueue", "-n", "shop", "-t", "order.placed", r#"{"order": 7}"#]).await?.succeeded()?;
        let mut relay = Relay::spawn(&["--sink", "stdout"], &[("POSTRIDER_DATABASE_URL", &site.url)])?;
        within(PATIENCE, "a line", || async { relay.out().contains('\n') }).await.with_context(|| relay.log())?;
        let line: serde_json::Value = serde_json::from_str(relay.out().lines().next().context("a line")?)?;
        assert_eq!(line["event_id"], id.out.trim());
        assert_eq!((&line["namespace"], &line["topic"]), (&json!("shop"), &json!("order.placed")));
        assert_eq!(line["payload"], json!({ "order": 7 }));
        assert_eq!(relay.stop().await?, 0);
        assert_eq!(site.count("delivered").await?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn migrate_shows_its_sql_first_and_writes_nothing_meanwhile() -> Result<()> {
    for site in [Site::postgres().await?, Site::mariadb().await?] {
        let dry = site.postrider(&["migrate", "--dry-run"]).await?.succeeded()?;
        assert!(dry.out.contains("create table"), "{dry:?}");
        let again = site.postrider(&["migrate", "--dry-run"]).await?.succeeded()?;
        assert_eq!(dry.out, again.out, "the dry run made nothing");
        let ran = site.postrider(&["migrate"]).await?.succeeded()?;
        assert!(ran.out.contains("migrated: 0001"), "{ran:?}");
        let after = site.postrider(&["migrate", "--dry-run"]).await?.succeeded()?;
        assert!(after.out.contains("up to date") && !after.out.contains("create"), "{after:?}");
    }
    let site = Site::sqlite().await?;
    let dry = site.postrider(&["migrate", "--dry-run"]).await?.succeeded()?;
    assert!(dry.out.to_lowercase().contains("create table"), "{dry:?}");
    assert_eq!(std::fs::read_dir(site.directory.path())?.count(), 0, "not even a file");
    Ok(())
}

#[tokio::test]
async fn enqueue_takes_everything_a_message_has() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let tenant = uuid::Uuid::new_v4().to_string();
        let dedupe = format!("{tenant}/7");
        let all = [
            "enqueue",
            "-n",
            "shop",
            "-t",
            "t",
            "-k",
            "k",
            "--tenant",
            &tenant,
            "--dedupe-key",
            &dedupe,
            "-H",
            "a=b=c",
            "--max-attempts",
            "3",
            "--delay",
            "1h",
            "--json",
            "[1]",
        ];
        let first = site.postrider(&all).await?.succeeded()?.json()?;
        let second = site.postrider(&all).await?.succeeded()?.json()?;
        assert_eq!((&first["new"], &second["new"]), (&json!(true), &json!(false)));
        assert_eq!(first["id"], second["id"]);
        let id = first["id"].as_str().context("an id")?;
        let shown = site.postrider(&["dead", "show", id, "--json"]).await?.succeeded()?.json()?;
        assert_eq!(shown["key"], "k");
        assert_eq!(shown["tenant"], tenant.as_str());
        assert_eq!(shown["dedupe_key"], dedupe.as_str());
        assert_eq!(shown["headers"]["a"], "b=c");
        assert_eq!(shown["max_attempts"], 3);
        assert_eq!(shown["state"], "pending");
        assert_eq!(shown["payload"], json!([1]));
    }
    Ok(())
}

#[tokio::test]
async fn enqueue_takes_lines_files_and_bytes_and_refuses_what_is_wrong() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let lines: String = (0..1_203).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    let ran =
        site.postrider_with(&["enqueue", "-n", "n", "-t", "t", "--lines"], &[], Some(&lines)).await?.succeeded()?;
    assert_eq!(ran.out, "enqueued 1203 messages\n");
    assert_eq!(site.count("pending").await?, 1_203);

    let file = site.file("payload", "\u{0}\u{1}not json")?.display().to_string();
    let ran = site
        .postrider(&["enqueue", "-n", "n", "-t", "bytes", "--content-type", "x/y", "--file", &file])
        .await?
        .succeeded()?;
    let shown = site.postrider(&["dead", "show", ran.out.trim(), "--json"]).await?.succeeded()?.json()?;
    assert_eq!(shown["payload_base64"], "AAFub3QganNvbg==");

    for (arguments, input, code, said) in [
        (vec!["enqueue", "-n", "n", "-t", "t", "{not json"], None, 2, "no JSON"),
        (vec!["enqueue", "-n", "n", "-t", "t"], None, 2, "required"),
        (vec!["enqueue", "-n", "sp ace", "-t", "t", "1"], None, 1, "character"),
        (vec!["enqueue", "-n", "n", "-t", "t", "--lines"], Some("1\n{\n"), 2, "line 2"),
        (vec!["enqueue", "-n", "n", "-t", "t", "-H", "novalue", "1"], None, 2, "NAME=VALUE"),
        (vec!["enqueue", "-n", "n", "-t", "t", "--delay", "5", "1"], None, 2, "unit"),
    ] {
        let ran = site.postrider_with(&arguments, &[], input).await?.failed_with(code)?;
        assert!(ran.err.contains(said), "{arguments:?}: {ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn s2_26_status_counts_by_state_namespace_and_topic() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        for (namespace, topic) in [("shop", "a"), ("shop", "a"), ("shop", "b"), ("billing", "a")] {
            site.postrider(&["enqueue", "-n", namespace, "-t", topic, "1"]).await?.succeeded()?;
        }
        site.postrider(&["enqueue", "-n", "shop", "-t", "a", "--delay", "1h", "1"]).await?.succeeded()?;
        let status = site.postrider(&["status", "--json"]).await?.succeeded()?.json()?;
        assert_eq!((&status["pending"], &status["due"], &status["dead"]), (&json!(5), &json!(4), &json!(0)));
        let topics = status["topics"].as_array().context("topics")?;
        let of = |namespace: &str, topic: &str| {
            topics
                .iter()
                .find(|row| row["namespace"] == namespace && row["topic"] == topic)
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!((&of("shop", "a")["messages"], &of("shop", "a")["due"]), (&json!(3), &json!(2)));
        assert_eq!(of("billing", "a")["last_minute"], 1);
        let narrowed =
            site.postrider(&["status", "--json", "-n", "billing", "--no-delivered"]).await?.succeeded()?.json()?;
        assert_eq!(narrowed["pending"], 1);
        let table = site.postrider(&["status"]).await?.succeeded()?.out;
        assert!(table.contains("5 pending (4 due, the oldest for"), "{table}");
        assert!(!table.contains('\u{1b}'), "no colours where there is no terminal");
        let coloured = site.postrider(&["status", "--color", "always"]).await?.succeeded()?.out;
        assert!(coloured.contains("billing"), "{coloured}");
    }
    Ok(())
}

#[tokio::test]
async fn status_watches_until_it_is_ended() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["status", "--watch", "--every", "100ms", "--json", "--database-url", &site.url])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().context("its output")?;
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(stdout));
    let first = tokio::time::timeout(PATIENCE, lines.next_line()).await??.context("a line")?;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&first)?["pending"], 0);
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let seen = async {
        while let Some(line) = lines.next_line().await? {
            if serde_json::from_str::<serde_json::Value>(&line)?["pending"] == 1 {
                return Ok(());
            }
        }
        anyhow::bail!("it ended")
    };
    tokio::time::timeout(PATIENCE, seen).await?
}

#[tokio::test]
async fn s24_purge_is_a_dry_run_until_it_is_confirmed() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        for _ in 0..3 {
            site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
        }
        let mut relay = Relay::spawn(&["--sink", "stdout"], &[("POSTRIDER_DATABASE_URL", &site.url)])?;
        let all = || async { site.count("delivered").await.is_ok_and(|rows| rows == 3) };
        within(PATIENCE, "three deliveries", all).await.with_context(|| relay.log())?;
        relay.stop().await?;

        let purge = |more: &'static [&'static str]| {
            let mut arguments = vec!["purge", "--json"];
            arguments.extend(more);
            let site = &site;
            async move { site.postrider(&arguments).await }
        };
        let dry = purge(&["--older-than", "0s"]).await?.succeeded()?.json()?;
        assert_eq!((&dry["matching"], &dry["deleted"], &dry["dry_run"]), (&json!(3), &json!(0), &json!(true)));
        purge(&["--older-than", "0s", "--confirm", "4"]).await?.failed_with(1)?;
        assert_eq!(site.count("delivered").await?, 3);
        let none = purge(&["--older-than", "1h", "--yes"]).await?.succeeded()?.json()?;
        assert_eq!(none["deleted"], 0);
        let done = purge(&["--older-than", "0s", "--confirm", "3"]).await?.succeeded()?.json()?;
        assert_eq!(done["deleted"], 3);
        assert_eq!(site.count("delivered").await?, 0);
        let audit = site.postrider(&["audit", "--json"]).await?.succeeded()?.json_lines()?;
        assert_eq!(audit.len(), 1, "{audit:?}");
        assert_eq!((&audit[0]["action"], &audit[0]["messages"]), (&json!("purge"), &json!(3)));
    }
    Ok(())
}

#[tokio::test]
async fn wrong_usage_is_said_and_ends_with_two() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (arguments, said) in [
        (vec!["status"], "which database?"),
        (vec!["status", "--source", "shop"], "which database?"),
        (vec!["run"], "no source"),
        (vec!["run", "--database-url", "sqlite:x.db"], "--sink"),
        (vec!["run", "--database-url", "sqlite:x.db", "--sink", "kafka"], "stdout"),
        (vec!["run", "--sink", "stdout"], "--database-url"),
        (vec!["dead", "replay", "--database-url", "sqlite:x.db"], "--all"),
        (vec!["dead", "discard", "--all", "--topic", "t", "--database-url", "sqlite:x.db"], "contradict"),
        (vec!["dead", "list", "--since", "yesterday", "--database-url", "sqlite:x.db"], "2h"),
        (vec!["purge", "--database-url", "sqlite:x.db"], "--older-than"),
        (vec!["no-such-command"], "unrecognized"),
        (vec!["config", "check", "--config", "missing.toml"], "missing.toml"),
    ] {
        let ran = postrider(&arguments, &[], None, directory.path()).await?.failed_with(2)?;
        assert!(ran.err.contains(said), "{arguments:?}: {ran:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 0, "nothing was made");
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (url, said) in [
        ("postgres://u:canary@127.0.0.1:1/db", "not"),
        ("mysql://u:canary@127.0.0.1:1/db", "not"),
        ("sqlite:missing.db", "missing"),
        ("oracle://u:canary@h/db", "postgres"),
    ] {
        let ran = postrider(&["status"], &[("POSTRIDER_DATABASE_URL", url)], None, directory.path()).await?;
        let ran = ran.failed_with(1)?;
        assert!(ran.err.contains(said) && !ran.all().contains("canary"), "{ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn doctor_finds_what_is_wrong_and_fails_for_it() -> Result<()> {
    for site in Site::each().await? {
        let wrong = site.postrider(&["doctor", "--json"]).await?.failed_with(1)?.json()?;
        let name = if site.url.starts_with("sqlite") { "unreachable" } else { "schema" };
        let findings = wrong[0]["findings"].as_array().context("findings")?;
        let problem = |finding: &&serde_json::Value| finding["name"] == name && finding["severity"] == "problem";
        assert!(findings.iter().any(|finding| problem(&finding) && finding["fix"].is_string()), "{wrong:#}");
        let site = site.migrated().await?;
        let well = site.postrider(&["doctor", "--json"]).await?.json()?;
        let findings = well[0]["findings"].as_array().context("findings")?;
        let schema = findings.iter().find(|finding| finding["name"] == "schema").context("the schema is examined")?;
        assert_eq!(schema["severity"], "fine", "{well:#}");
        assert!(findings.len() > 8 && findings.iter().all(|finding| !problem(&finding)), "{well:#}");
    }
    Ok(())
}

#[tokio::test]
async fn completions_and_manual_pages_cover_every_command() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        let script = postrider(&["completions", shell], &[], None, directory.path()).await?.succeeded()?.out;
        for command in ["migrate", "doctor", "replay"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let page = postrider(&["man"], &[], None, directory.path()).await?.succeeded()?.out;
    assert!(page.contains(".TH postrider 1"), "{page}");
    let pages = directory.path().join("man").display().to_string();
    postrider(&["man", "--directory", &pages], &[], None, directory.path()).await?.succeeded()?;
    assert!(directory.path().join("man/postrider-dead-replay.1").exists());
    Ok(())
}

#[tokio::test]
async fn the_demo_proves_itself() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ran = postrider(&["demo", "--orders", "60", "--quiet"], &[], None, directory.path()).await?.succeeded()?;
    assert!(ran.out.contains("all of them") && ran.out.contains("postrider status"), "{ran:?}");
    let url = format!("sqlite:{}", directory.path().join("postrider-demo.db").display());
    let status = postrider(&["status", "--json", "--database-url", &url], &[], None, directory.path()).await?;
    assert_eq!(status.succeeded()?.json()?["pending"], 0);
    Ok(())
}

#[tokio::test]
async fn an_option_beats_a_variable_and_an_empty_variable_is_none() -> Result<()> {
    let (one, other) = (Site::sqlite().await?.migrated().await?, Site::sqlite().await?.migrated().await?);
    other.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let text =
        format!("[source.other]\nurl = \"{}\"\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n", other.url);
    let file = one.file("postrider.toml", &text)?.display().to_string();
    // `one` is in the variable, `other` in the file.
    let by_file = one.postrider(&["status", "--json", "--config", &file]).await?.succeeded()?.json()?;
    assert_eq!((&by_file["source"], &by_file["pending"]), (&json!("other"), &json!(1)));
    let by_variable = one.postrider(&["status", "--json"]).await?.succeeded()?.json()?;
    assert_eq!(by_variable["pending"], 0);
    let by_option = one.postrider(&["status", "--json", "--database-url", &other.url]).await?.succeeded()?.json()?;
    assert_eq!(by_option["pending"], 1);
    one.postrider(&["status", "--config", &file, "--database-url", &one.url]).await?.failed_with(2)?;
    let empty = [("POSTRIDER_DATABASE_URL", ""), ("POSTRIDER_CONFIG", "")];
    let default = postrider(&["status", "--json"], &empty, None, one.directory.path()).await?.succeeded()?.json()?;
    assert_eq!(default["source"], "other", "./postrider.toml");
    // What the readme says: the address is exported, then a file is written.
    let mut relay = Relay::spawn(&["--config", &file], &[("POSTRIDER_DATABASE_URL", &one.url)])?;
    within(PATIENCE, "a line", || async { relay.out().contains("event_id") }).await.with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_source_that_is_down_hides_no_other() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let text = format!(
        "[source.a]\nurl = \"postgres://u:canary@127.0.0.1:1/db\"\n[source.b]\nurl = \"{}\"\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n",
        site.url
    );
    let file = site.file("postrider.toml", &text)?.display().to_string();
    let ran = site.postrider(&["status", "--json", "--config", &file]).await?.failed_with(1)?;
    let lines = ran.json_lines()?;
    assert!(lines[0]["error"].is_string() && lines[1]["pending"] == 0, "{ran:?}");
    assert!(!ran.all().contains("canary"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_shown_is_what_was_written_and_cannot_steer_the_terminal() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let payload = "{\"n\": 12345678901234567890123, \"x\": \"a\\u009b2J\\u202eb\"}";
        let id = site.postrider(&["enqueue", "-n", "n", "-t", "t", payload]).await?.succeeded()?.out;
        for arguments in [vec!["dead", "show", id.trim()], vec!["dead", "show", id.trim(), "--json"]] {
            let shown = site.postrider(&arguments).await?.succeeded()?.out;
            assert!(shown.contains("12345678901234567890123"), "{shown}");
            assert!(arguments.len() == 4 || !shown.contains(['\u{9b}', '\u{202e}']), "{shown:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_operator_is_told_what_was_not_done() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let waiting = site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?.out;
    let ran = site.postrider(&["dead", "replay", waiting.trim(), "--yes"]).await?.failed_with(1)?;
    assert!(ran.out.contains("replayed 0 messages") && ran.err.contains("1 of the ids"), "{ran:?}");
    let source = site.source().await?;
    source.run("insert into postrider_migrations (version, name) values (99, 'later')").await?;
    for command in [vec!["dead", "replay", "--all", "--yes"], vec!["purge", "--older-than", "0s", "--yes"]] {
        let ran = site.postrider(&command).await?.failed_with(1)?;
        assert!(ran.err.contains("99"), "{ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_relay_runs_on_a_terminal() -> Result<()> {
    let site = Site::sqlite().await?;
    let command =
        format!("{} run --database-url {} --sink stdout --color always", env!("CARGO_BIN_EXE_postrider"), site.url);
    let ran = tokio::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(site.directory.path())
        .stdin(std::process::Stdio::null())
        .output()
        .await?;
    assert_eq!(ran.status.code(), Some(1), "the file is missing, and that is all: {ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("is missing"), "{ran:?}");
    Ok(())
}

/// The commands under "With your own database", as a new user types them.
#[tokio::test]
async fn the_commands_of_the_readme_bring_out_the_first_event() -> Result<()> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"))?;
    let (_, rest) = readme.split_once("## With your own database").context("the section")?;
    let block = rest.split("```").nth(1).context("its commands")?;
    let commands = block.lines().filter_map(|line| line.strip_prefix("postrider "));
    let words = |command: &str| -> Vec<String> {
        let command = command.split(" #").next().unwrap_or_default().trim_end_matches(['&', ' ']);
        // The one quoted word is the last one.
        match command.split_once('\'') {
            Some((before, quoted)) => {
                before.split_whitespace().map(str::to_owned).chain([quoted.trim_end_matches('\'').to_owned()]).collect()
            }
            None => command.split_whitespace().map(str::to_owned).collect(),
        }
    };
    let site = Site::postgres().await?;
    let mut relays = Vec::new();
    for command in commands {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.split_first() {
            Some((&"run", rest)) => relays.push(Relay::spawn(rest, &[("POSTRIDER_DATABASE_URL", &site.url)])?),
            _ => {
                site.postrider(&words).await?.succeeded()?;
            }
        }
    }
    let mut relay = relays.pop().context("the relay")?;
    within(PATIENCE, "the event", || async { relay.out().contains("order.placed") })
        .await
        .with_context(|| relay.log())?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}
