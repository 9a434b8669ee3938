//! Tests that the documentation names: whether they exist, and whether anybody runs them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Cargo says at run time where the crate is; where it was compiled may be another copy with the same target directory.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..")
}

/// A file of the repository.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The suite of the inboxes.
pub const INBOX: &str = "crates/testkit/src/inbox.rs";

/// The suite of the sinks.
pub const SINKS: &str = "crates/testkit/src/sinks.rs";

/// The suite of the changelog, one file per theme.
pub const CHANGELOG: &str = "crates/postrider-changelog/tests/suite/";

/// Where the tests of a suite are listed, if the file is part of one.
pub fn list_of(file: &str) -> Result<Option<String>> {
    let list = match file {
        _ if file.contains("src/conformance/") => "crates/testkit/src/conformance/mod.rs",
        _ if file.starts_with(CHANGELOG) => "crates/postrider-changelog/tests/suite/mod.rs",
        _ if file.ends_with("producers/suite.rs") || file == INBOX || file == SINKS => file,
        _ => return Ok(None),
    };
    read(list).map(Some)
}

/// What becomes of a test that is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// There is no such function.
    Missing,
    /// There is such a function, but it is neither a test nor in the list of its suite.
    Unused,
    Ignored,
    Run,
}

/// Looks for a test, given the sources of its file and of whatever lists tests for suites.
pub fn fate(test: &str, source: &str, list: Option<&str>) -> Fate {
    let at = source.find(&format!("fn {test}(")).or_else(|| source.find(&format!("fn {test}<")));
    let Some(at) = at else { return Fate::Missing };
    let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let above = source[..line].lines().rev().take_while(|line| !line.trim().is_empty());
    let attributes: Vec<&str> = above.map(str::trim).filter(|line| line.starts_with("#[")).collect();
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Fate::Ignored;
    }
    let is_used = match list {
        // A line of a list is a test, or a module and a test.
        Some(list) => list
            .lines()
            .any(|line| line.rsplit("::").next().unwrap_or_default().trim().trim_end_matches([',', ')', ';']) == test),
        None => attributes.iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")),
    };
    if is_used { Fate::Run } else { Fate::Unused }
}
