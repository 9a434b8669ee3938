//! Where the programs of PostgreSQL are.
//!
//! The variable `POSTRIDER_TEST_PG_BIN` wins, then the search path, then the newest version that Debian has installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const VARIABLE: &str = "POSTRIDER_TEST_PG_BIN";
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory that has `initdb` and `postgres`.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os(VARIABLE) {
        let chosen = PathBuf::from(chosen);
        ensure!(is_complete(&chosen), "{VARIABLE} names {}, which has no initdb and postgres", chosen.display());
        return Ok(chosen);
    }
    search(std::env::var_os("PATH"), Path::new(DEBIAN)).with_context(|| {
        format!("PostgreSQL is not installed: install the Debian package postgresql, or set {VARIABLE}")
    })
}

fn search(path: Option<OsString>, debian: &Path) -> Option<PathBuf> {
    let on_path = path.as_ref().and_then(|path| std::env::split_paths(path).find_map(complete));
    on_path.or_else(|| newest(debian))
}

/// Debian keeps each major version in a directory named after it.
fn newest(debian: &Path) -> Option<PathBuf> {
    std::fs::read_dir(debian)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, directory)| is_complete(directory))
        .max()
        .map(|(_, directory)| directory)
}

/// The search path may have links to the server's programs only; their real place has `psql` and `pgbench` too.
fn complete(directory: PathBuf) -> Option<PathBuf> {
    let program = directory.join("postgres").canonicalize().ok()?;
    let real = program.parent().filter(|real| is_complete(real)).map(Path::to_path_buf);
    real.or_else(|| is_complete(&directory).then_some(directory))
}

/// Client packages put `psql` on the path without a server, so both programs must be there.
fn is_complete(directory: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn install(directory: &Path, programs: &[&str]) -> Result<()> {
        fs::create_dir_all(directory)?;
        programs.iter().try_for_each(|program| fs::write(directory.join(program), "").map_err(Into::into))
    }

    #[test]
    fn the_newest_complete_version_is_taken() -> Result<()> {
        let root = tempfile::tempdir()?;
        install(&root.path().join("9/bin"), &["initdb", "postgres"])?;
        install(&root.path().join("15/bin"), &["initdb", "postgres"])?;
        install(&root.path().join("17/bin"), &["psql"])?;
        assert_eq!(search(None, root.path()), Some(root.path().join("15/bin")));
        Ok(())
    }

    #[test]
    fn the_search_path_wins_over_debian() -> Result<()> {
        let root = tempfile::tempdir()?;
        install(&root.path().join("15/bin"), &["initdb", "postgres"])?;
        install(&root.path().join("mine"), &["initdb", "postgres"])?;
        let path = root.path().join("mine");
        assert_eq!(search(Some(path.clone().into()), root.path()), Some(path));
        Ok(())
    }

    #[test]
    fn links_on_the_search_path_are_followed() -> Result<()> {
        let root = tempfile::tempdir()?;
        let real = root.path().canonicalize()?.join("real");
        install(&real, &["initdb", "postgres", "psql"])?;
        let links = root.path().join("links");
        fs::create_dir(&links)?;
        std::os::unix::fs::symlink(real.join("postgres"), links.join("postgres"))?;
        assert_eq!(search(Some(links.into()), root.path()), Some(real));
        Ok(())
    }

    #[test]
    fn nothing_is_found_where_nothing_is_installed() -> Result<()> {
        assert_eq!(search(None, tempfile::tempdir()?.path()), None);
        Ok(())
    }
}
