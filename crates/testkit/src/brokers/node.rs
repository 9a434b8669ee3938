//! The Node environment of the tests: consumers in TypeScript.
//!
//! `scripts/node-env` makes it and prints where it is. Fails with what that script says, and with what the compiler says of
//! a file that it does not accept.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

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

/// Puts files into a directory under these names, checks those in TypeScript as strictly as the compiler can, and compiles
/// them: `a.ts` becomes `a.js` beside it. The same files make the same directory, so they are compiled once.
pub fn compile(files: &[(String, PathBuf)]) -> Result<PathBuf> {
    let home = directory()?;
    let mut hasher = DefaultHasher::new();
    let mut texts = vec![("tsconfig.json", SETTINGS.to_owned())];
    for (name, file) in files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        texts.push((name, text));
    }
    texts.hash(&mut hasher);
    let made = home.join(format!("compiled-{:016x}", hasher.finish()));
    if !made.exists() {
        let work = tempfile::tempdir_in(&home)?;
        write(work.path(), &texts)?;
        check(&home, work.path())?;
        // Another process may be quicker, and has made the same.
        if let Err(error) = fs::rename(work.path(), &made) {
            ensure!(made.exists(), "cannot make {}: {error}", made.display());
        }
    }
    Ok(made)
}

fn write(directory: &Path, texts: &[(&str, String)]) -> Result<()> {
    for (name, text) in texts {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn check(home: &Path, directory: &Path) -> Result<()> {
    let compiler = home.join("node_modules/typescript/bin/tsc");
    let said =
        Command::new("node").arg(compiler).arg("--project").arg(directory).output().context("cannot run node")?;
    ensure!(said.status.success(), "TypeScript is refused:\n{}", String::from_utf8_lossy(&said.stdout));
    Ok(())
}
