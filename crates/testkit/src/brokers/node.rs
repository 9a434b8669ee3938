//! The Node environment of the tests: consumers in TypeScript.
//!
//! `scripts/node-env` makes it and prints where it is. Fails with what that script says, and with what the compiler says of
//! a file that it does not accept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// How strictly files are checked.
const SETTINGS: &str = r#"{"compilerOptions": {
  "strict": true, "noUncheckedIndexedAccess": true, "noUnusedLocals": true, "noUnusedParameters": true,
  "noImplicitReturns": true, "exactOptionalPropertyTypes": true, "noEmitOnError": true, "skipLibCheck": true,
  "target": "es2022", "module": "nodenext", "types": ["node"]}}"#;

/// The directory below which files find the packages.
pub fn directory() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/node-env");
    let made = Command::new(script).output().context("cannot run scripts/node-env")?;
    ensure!(made.status.success(), "scripts/node-env failed:\n{}", String::from_utf8_lossy(&made.stderr));
    Ok(PathBuf::from(String::from_utf8(made.stdout)?.trim()))
}

/// Checks files in TypeScript as strictly as the compiler can, and compiles them beside each other: `a.ts` becomes `a.js`
/// in the directory that is answered.
pub fn compile(files: &[PathBuf]) -> Result<TempDir> {
    let home = directory()?;
    let work = tempfile::tempdir_in(&home)?;
    fs::write(work.path().join("tsconfig.json"), SETTINGS)?;
    for file in files {
        let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
        fs::copy(file, work.path().join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    let compiler = home.join("node_modules/typescript/bin/tsc");
    let said = Command::new("node").arg(compiler).arg("--project").arg(work.path()).output().context("cannot run node")?;
    ensure!(said.status.success(), "TypeScript is refused:\n{}", String::from_utf8_lossy(&said.stdout));
    Ok(work)
}
