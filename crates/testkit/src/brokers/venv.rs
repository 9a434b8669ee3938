//! The Python environment of the tests: servers that come from there, and consumers in another language.
//!
//! `scripts/python-env` makes it and prints where it is. Fails with what that script says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The Python of the environment.
pub fn python() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/python-env");
    let made = Command::new(script).output().context("cannot run scripts/python-env")?;
    ensure!(made.status.success(), "scripts/python-env failed:\n{}", String::from_utf8_lossy(&made.stderr));
    Ok(PathBuf::from(String::from_utf8(made.stdout)?.trim()))
}

/// A program that a package of the environment brought.
pub fn program(name: &str) -> Result<PathBuf> {
    let program = python()?.with_file_name(name);
    match program.is_file() {
        true => Ok(program),
        false => bail!("{name} is not in the Python environment: add its package to scripts/python-env"),
    }
}
