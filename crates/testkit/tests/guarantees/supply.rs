//! S22: what is built comes from where it should, under licences that are allowed, and without `unsafe` of ours.
//!
//! This is the part of `cargo deny` that needs neither the tool nor the network; `scripts/deny` runs all of it.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::named::{read, root};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every package of the lock file, with what its manifest says. Those for other platforms, which no build has needed, are downloaded.
fn packages() -> Result<Vec<Value>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let metadata =
        Command::new(cargo).args(["metadata", "--locked", "--format-version", "1"]).current_dir(root()).output()?;
    ensure!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    metadata["packages"].as_array().cloned().context("packages")
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// The licences that deny.toml allows.
fn allowed() -> Result<BTreeSet<String>> {
    let deny: toml::Value = toml::from_str(&read("deny.toml")?)?;
    let allow = deny["licenses"]["allow"].as_array().context("a list of licences")?;
    Ok(allow.iter().filter_map(|licence| Some(licence.as_str()?.to_owned())).collect())
}

/// Whether an expression can be met by allowed licences alone.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let expression = Expression::parse_mode(expression, ParseMode::LAX)?;
    Ok(expression.evaluate(|asked| allowed.contains(&asked.to_string())))
}

#[test]
fn s22_every_package_comes_from_crates_io_or_is_ours() -> Result<()> {
    let packages = packages()?;
    ensure!(packages.len() > 300, "only {} packages", packages.len());
    for package in packages {
        let ours = package["source"].is_null() && text(&package, "manifest_path").contains("/Cargo.toml");
        ensure!(ours || text(&package, "source") == CRATES_IO, "{} is from {}", package["name"], package["source"]);
    }
    Ok(())
}

#[test]
fn s22_every_package_has_a_licence_that_is_allowed() -> Result<()> {
    let allowed = allowed()?;
    for package in packages()? {
        let licence = text(&package, "license");
        ensure!(is_allowed(licence, &allowed)?, "{} is under {licence:?}, see deny.toml", package["name"]);
    }
    Ok(())
}

/// Of a crate that is asked for in any version, the next `cargo update` may bring any other.
#[test]
fn s22_no_package_of_ours_takes_any_version_of_another() -> Result<()> {
    for package in packages()?.iter().filter(|package| package["source"].is_null()) {
        for wanted in package["dependencies"].as_array().context("dependencies")? {
            let any = wanted["path"].is_null() && text(wanted, "req") == "*";
            ensure!(!any, "{} takes any version of {}", package["name"], wanted["name"]);
        }
    }
    Ok(())
}

#[test]
fn s22_a_licence_that_is_not_allowed_is_found_out() -> Result<()> {
    let allowed = allowed()?;
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("(MIT OR Apache-2.0) AND AGPL-3.0-only", false),
    ] {
        ensure!(is_allowed(expression, &allowed)? == expected, "{expression}");
    }
    Ok(())
}

#[test]
fn s22_unsafe_is_forbidden_in_every_crate_of_ours() -> Result<()> {
    let workspace: toml::Value = toml::from_str(&read("Cargo.toml")?)?;
    ensure!(workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str() == Some("forbid"));
    let root = root().canonicalize()?;
    let ours: Vec<Value> = packages()?.into_iter().filter(|package| package["source"].is_null()).collect();
    ensure!(ours.len() > 10, "only {} crates of ours", ours.len());
    for package in ours {
        let manifest: toml::Value = toml::from_str(&read(text(&package, "manifest_path"))?)?;
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
        ensure!(inherits == Some(true), "{} does not inherit the lints of {}", package["name"], root.display());
    }
    ensure!(read("fuzz/src/lib.rs")?.contains("#![forbid(unsafe_code)]"));
    Ok(())
}

/// A lock file that is not in the repository, or not used, makes a build that nobody has tested.
#[test]
fn s22_ci_builds_what_the_lock_file_says() -> Result<()> {
    let ignored = read(".gitignore")?;
    ensure!(!ignored.contains("Cargo.lock") && root().join("Cargo.lock").exists());
    for script in [".ci/run", "scripts/test", "scripts/sabotage", "scripts/fuzz"] {
        for line in read(script)?.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let builds = ["cargo test", "cargo build", "cargo run", "cargo check", "cargo clippy", "cargo doc"];
            let is_locked = line.contains("--locked") || !builds.iter().any(|verb| line.contains(verb));
            ensure!(is_locked, "{script} does not use the lock file: {line}");
        }
    }
    Ok(())
}
