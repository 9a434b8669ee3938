//! The life of the server process: initialise, start, kill, start again.
//!
//! All calls block. Readiness is read from our own file with the process id, which MariaDB writes when it listens, and
//! not tried over the network, where a server of another test process could answer on a port that both chose.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use super::options::MariaDbOptions;
use super::{PASSWORD, USER};
use crate::guard::Guard;
use crate::home::Home;
use crate::port::{on_free_port, was_taken};

/// How long the port of a killed server may stay in the way of the next start.
const RELEASED_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Server {
    guard: Guard,
}

impl Server {
    /// Creates the data directory and starts a server on it; says on which port.
    pub(super) fn start(options: &MariaDbOptions) -> Result<(Self, u16)> {
        let (server, install) = (find("mariadbd")?, find("mariadb-install-db")?);
        let home = Home::create("postrider-mariadb-", options.parent.as_deref())?;
        let file = home.path().join("server.cnf");
        let defaults = format!("--defaults-file={}", file.display());
        // It has no children, and InnoDB recovers from anything: the hardest signal is the simplest.
        let guard = Guard::new(home, "KILL", &[server.into(), defaults.into()])?;
        let directory = guard.home().path().to_path_buf();
        initialise(&install, guard.home())?;
        write(&directory.join("accounts.sql"), &accounts())?;
        let mut server = Self { guard };
        let port = on_free_port(|port| {
            write(&file, &configuration(options, &directory, port))?;
            server.guard.start_until(is_ready)
        })?;
        Ok((server, port))
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.guard.server()
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.guard.stop()
    }

    pub(super) fn restart(&mut self) -> Result<()> {
        self.guard.stop()?;
        let deadline = Instant::now() + RELEASED_WITHIN;
        while let Err(error) = self.guard.start_until(is_ready) {
            if !was_taken(&error) || Instant::now() > deadline {
                return Err(error.context("cannot start MariaDB again"));
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }
}

/// Debian keeps the server in a directory that is not on everybody's search path.
fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")])
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
        .with_context(|| format!("{program} is not there: install the Debian package mariadb-server"))
}

/// Twice at most: on a busy machine it fails now and then without a reason that it would tell.
fn initialise(install: &Path, home: &Home) -> Result<()> {
    let data = home.path().join("data");
    let mut said = String::new();
    for _ in 0..2 {
        let output = home
            .command(install)
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(["--innodb-use-native-aio=0", &format!("--datadir={}", data.display())])
            .arg(format!("--tmpdir={}", home.path().display()))
            .output()
            .context("cannot run mariadb-install-db; may the account of the server read it?")?;
        if output.status.success() {
            return Ok(());
        }
        said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let _ = fs::remove_dir_all(&data);
    }
    let parent = home.path().parent().unwrap_or(home.path()).display();
    bail!("mariadb-install-db failed; may the account of the server enter {parent}? it says:\n{said}")
}

/// Runs at every start, before the server listens.
fn accounts() -> String {
    format!(
        "alter user if exists root@localhost identified by '{PASSWORD}', root@`127.0.0.1` identified by '{PASSWORD}', root@`::1` identified by '{PASSWORD}';\n\
         create user if not exists {USER}@`%` identified by '{PASSWORD}';\n\
         grant all on *.* to {USER}@`%` with grant option;\n"
    )
}

fn configuration(options: &MariaDbOptions, directory: &Path, port: u16) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let places = [
        ("datadir", at("data")),
        // A server that starts removes the temporary tables it finds, also those of another one that is at work.
        ("tmpdir", directory.display().to_string()),
        ("socket", at("socket")),
        ("pid-file", at("pid")),
        ("init-file", at("accounts.sql")),
        ("port", port.to_string()),
    ];
    let places = places.iter().map(|(name, value)| format!("{name} = \"{value}\"\n"));
    std::iter::once(options.configuration()).chain(places).collect()
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// A stale file has another process id.
fn is_ready(server: Pid, home: &Home) -> bool {
    fs::read_to_string(home.path().join("pid")).is_ok_and(|text| text.trim() == server.to_string())
}
