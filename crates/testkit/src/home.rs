//! The throw-away directory of one server, and the account that the server runs under.
//!
//! PostgreSQL and PgBouncer refuse to run as root. When the tests run as root, the directory belongs to the account
//! `postgres` and every command runs under it; otherwise all stays with the current user. Fails when root has no such
//! account, or when the parent directory cannot be entered by it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::{Uid, User};

/// A directory that only one server uses. Its guard removes it.
pub(crate) struct Home {
    path: PathBuf,
    account: Option<User>,
}

impl Home {
    /// Creates an empty directory under `parent`, or under the system's directory for temporary files.
    pub(crate) fn create(prefix: &str, parent: Option<&Path>) -> Result<Self> {
        let account = account()?;
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(&parent)
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
        if let Some(user) = &account {
            std::os::unix::fs::chown(directory.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .with_context(|| format!("cannot give {} to {}", directory.path().display(), user.name))?;
        }
        Ok(Self { path: directory.keep(), account })
    }

    /// The same for a server that has no objection to the caller's own account, whoever that is.
    pub(crate) fn of_caller(prefix: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir();
        let directory = directory.context("cannot create a directory for temporary files")?;
        Ok(Self { path: directory.keep(), account: None })
    }

    /// Where the directory is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that receives all output of the server.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// What the server has logged after the first `skip` bytes; empty when there is no log yet.
    pub(crate) fn log_after(&self, skip: usize) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(skip..).unwrap_or_default()).into_owned()
    }

    /// A command that runs under the server's account, with nothing of the caller's environment but the path.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // the caller's PG* variables and locale must not leak in, and its working directory may be closed to us
        command.env_clear().env("PATH", search_path()).env("LC_ALL", "C.UTF-8").current_dir("/");
        if let Some(user) = &self.account {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

fn search_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned())
}

fn account() -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    User::from_name("postgres")
        .context("cannot look up the account `postgres`")?
        .context("tests run as root need the account `postgres`: install the Debian package postgresql")
        .map(Some)
}
