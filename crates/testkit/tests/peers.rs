//! What is measured beside Postrider is what is said to be: `bench/peers` is not run by tests, but its programs can be read, its
//! driver keeps its promises, and versions are the same wherever they stand.

#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Cargo says at run time where the crate is; where it was compiled may be another copy with the same target directory.
fn peers() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../../bench/peers")
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(peers().join(file)).with_context(|| format!("cannot read {file}"))
}

/// The text of a key in an entry of `peers.toml`.
fn text<'a>(peer: &'a str, key: &str) -> Result<&'a str> {
    let line = peer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
    line.with_context(|| format!("a peer without {key}: {peer}"))
}

/// Runs a command in `bench/peers`, which must succeed.
fn succeeds(words: &[&str]) -> Result<()> {
    let mut command = Command::new(words[0]);
    let done = command.args(&words[1..]).current_dir(peers()).env("PYTHONDONTWRITEBYTECODE", "1").output()?;
    ensure!(done.status.success(), "{words:?}:\n{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The files of a directory of `bench/peers` with an ending.
fn files(directory: &str, ending: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(peers().join(directory))?;
    let names = entries.map(|entry| Ok(format!("{directory}/{}", entry?.file_name().to_string_lossy())));
    let names: Result<Vec<String>> = names.collect();
    Ok(names?.into_iter().filter(|name| name.ends_with(ending)).collect())
}

#[test]
fn versions_of_peers_are_pinned_where_they_are_installed_and_told_in_the_readme() -> Result<()> {
    let pins = ["node/package.json", "python/requirements.txt", "rust/Cargo.toml", "install"];
    let pins = pins.map(read);
    let pins = pins.into_iter().collect::<Result<Vec<_>>>()?.join("\n");
    let readme = read("README.md")?;
    let table = read("peers.toml")?;
    let entries: Vec<&str> = table.split("[[peer]]").skip(1).collect();
    ensure!(entries.len() >= 9, "only {} peers", entries.len());
    for peer in entries {
        let (name, package, version) = (text(peer, "name")?, text(peer, "package")?, text(peer, "version")?);
        // Debian has one version of a package; which it was is seen in the report.
        let pin = [
            format!("\"{package}\": \"{version}\""),
            format!("{package}=={version}"),
            format!("{package} = \"={version}\""),
            format!("{package} = {{ version = \"={version}\""),
        ];
        let from_debian = package.starts_with("postgresql-");
        ensure!(
            from_debian || pin.iter().any(|pin| pins.contains(pin)),
            "{package} {version} is not what is installed"
        );
        let row = readme.lines().find(|line| line.starts_with(&format!("| {name} |")));
        ensure!(row.is_some_and(|row| row.contains(version)), "the README does not say that {name} is {version}");
    }
    Ok(())
}

#[test]
fn programs_of_peers_can_be_read() -> Result<()> {
    let parse = "import ast, sys; [ast.parse(open(file).read(), file) for file in sys.argv[1:]]";
    let mut python = vec!["python3", "-c", parse, "run"];
    let sources = [files("python", ".py")?, files("driver", ".py")?].concat();
    python.extend(sources.iter().map(String::as_str));
    succeeds(&python)?;
    for program in files("node", ".mjs")? {
        succeeds(&["node", "--check", &program])?;
    }
    succeeds(&["sh", "-n", "install"])?;
    succeeds(&["sh", "-n", "../../scripts/bench-peers"])
}

#[test]
fn the_driver_of_peers_keeps_its_promises() -> Result<()> {
    succeeds(&["python3", "-m", "unittest", "driver.test_driver"])
}
