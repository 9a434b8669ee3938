//! Which sources are compiled: from the roots that Cargo finds by itself along every `mod`. A test in a file that no `mod` leads to
//! any more runs nowhere, although it looks like one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All sources of the packages under these directories, by their paths from the root.
pub fn reached(root: &Path, directories: &[&str]) -> Result<BTreeSet<String>> {
    let mut open = Vec::new();
    for directory in directories {
        for package in entries(&root.join(directory))? {
            for file in ["src/lib.rs", "src/main.rs", "build.rs"] {
                open.push(package.join(file));
            }
            for directory in ["src/bin", "tests", "benches", "examples"] {
                let inside = entries(&package.join(directory)).unwrap_or_default();
                open.extend(inside.iter().filter(|file| is_rust(file)).cloned());
                open.extend(inside.iter().map(|directory| directory.join("main.rs")));
            }
        }
    }
    let mut reached = BTreeSet::new();
    while let Some(file) = open.pop() {
        let Ok(source) = fs::read_to_string(&file) else { continue };
        let name = file.strip_prefix(root).context("a file outside")?.to_string_lossy().into_owned();
        if reached.insert(name) {
            open.extend(modules(&file, &source));
        }
    }
    Ok(reached)
}

/// Where the modules of a source may be; which of the places there are, the compiler knows.
fn modules(file: &Path, source: &str) -> Vec<PathBuf> {
    let here = file.parent().unwrap_or(Path::new(""));
    let below = here.join(file.file_stem().unwrap_or_default());
    let mut found = Vec::new();
    let mut path = None;
    for line in source.lines().map(str::trim) {
        if let Some(given) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            path = Some(here.join(given));
        } else if let Some(name) = module(line) {
            match path.take() {
                Some(path) => found.push(path),
                None => {
                    let places =
                        [here, &below].map(|place| [place.join(format!("{name}.rs")), place.join(name).join("mod.rs")]);
                    found.extend(places.into_iter().flatten());
                }
            }
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            path = None;
        }
    }
    found
}

/// The name in `mod name;`, with whatever visibility.
fn module(line: &str) -> Option<&str> {
    let rest = line.strip_suffix(';')?;
    let rest = match rest.strip_prefix("pub") {
        Some(rest) => rest.split_once("mod ").map(|(_, name)| name)?,
        None => rest.strip_prefix("mod ")?,
    };
    rest.chars().all(|letter| letter.is_alphanumeric() || letter == '_').then_some(rest)
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

#[test]
fn a_file_is_reached_by_its_mod_and_by_nothing_else() -> Result<()> {
    let root = tempfile::tempdir()?;
    let put = |file: &str, text: &str| -> Result<()> {
        let file = root.path().join("crates/a").join(file);
        fs::create_dir_all(file.parent().context("a directory")?)?;
        Ok(fs::write(file, text)?)
    };
    put("tests/one.rs", "#[path = \"one/first.rs\"]\nmod first;\n// mod third;\nmod second {}\n")?;
    put("tests/one/first.rs", "pub(crate) mod deep;\n")?;
    put("tests/one/deep.rs", "")?;
    put("tests/one/second.rs", "")?;
    put("tests/one/third.rs", "")?;
    let found = reached(root.path(), &["crates"])?;
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        ["crates/a/tests/one.rs", "crates/a/tests/one/deep.rs", "crates/a/tests/one/first.rs",]
    );
    Ok(())
}
