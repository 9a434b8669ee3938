//! The Python environment of the tests: servers that come from there, and consumers in another language.
//!
//! `scripts/python-env` makes it and prints where it is. Fails with what that script says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Runs a script of the test until it ends, and answers the lines it printed; async callers use `spawn_blocking`.
pub fn run(script: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(python()?);
    // Isolated, so that a script may have the name of the package that it imports.
    let ended =
        command.arg("-I").arg(script).args(arguments).stdin(Stdio::null()).output().context("cannot run Python")?;
    let (said, complained) = (String::from_utf8(ended.stdout)?, String::from_utf8_lossy(&ended.stderr).into_owned());
    ensure!(ended.status.success(), "{} failed:\n{complained}", script.display());
    Ok(said.lines().map(str::to_owned).collect())
}
