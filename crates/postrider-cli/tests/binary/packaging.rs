//! What is shipped beside the binary is consistent with it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// The words of a text that begin so, cut down to the names of metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("postrider_"));
    let name =
        |word: &str| word.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned();
    words.map(name).collect()
}

#[test]
fn s2_23_the_dashboard_and_the_alert_rules_use_metrics_that_exist() -> Result<()> {
    let documented = metrics_in(&read("docs/operations/monitor.md")?);
    let dashboard = read("packaging/grafana/postrider.json")?;
    let parsed: serde_json::Value = serde_json::from_str(&dashboard)?;
    ensure!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 8), "panels");
    for (what, text) in [("dashboard", dashboard), ("rules", read("packaging/prometheus/postrider.rules.yml")?)] {
        let unknown: Vec<String> = metrics_in(&text).difference(&documented).cloned().collect();
        ensure!(unknown.is_empty(), "{what}: {unknown:?}");
    }
    Ok(())
}

#[test]
fn s3_30_make_names_what_the_team_types() -> Result<()> {
    for (target, said) in [("run-outbox-publisher", "-- run"), ("build", "--release"), ("demo", "-- demo")] {
        let made = Command::new("make").args(["--dry-run", target]).current_dir(root()).output()?;
        let text = String::from_utf8_lossy(&made.stdout).into_owned();
        ensure!(made.status.success() && text.contains(said), "{target}: {made:?}");
    }
    let procfile = read("Procfile")?;
    ensure!(procfile.contains("outbox-publisher: postrider run"), "{procfile}");
    Ok(())
}

#[test]
fn every_command_of_the_packaging_exists() -> Result<()> {
    let files = ["Dockerfile", "heroku.yml", "Procfile", "packaging/systemd/postrider.service"];
    for file in files {
        for line in read(file)?.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let Some((_, rest)) = line.split_once("postrider ").or_else(|| line.split_once("\"postrider\", \"")) else {
                continue;
            };
            let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase()).collect();
            let ran = Command::new(env!("CARGO_BIN_EXE_postrider")).args([&word, "--help"]).output()?;
            ensure!(word.is_empty() || ran.status.success(), "{file}: {line}");
        }
    }
    Ok(())
}
