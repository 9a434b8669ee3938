//! The life of the server process: initialise, start, stop, kill, start again.
//!
//! All calls block. Readiness is read from our own `postmaster.pid` and not tried over the network, where a server of
//! another test process could answer on a port that both chose.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::options::{PostgresOptions, line};
use crate::guard::Guard;
use crate::home::Home;
use crate::pid::{children_of, has_ended};
use crate::port::{on_free_port, was_taken};

/// How long killed processes, their shared memory and their port may stay in the way of the next start.
const RELEASED_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Server {
    guard: Guard,
}

impl Server {
    /// Creates the data directory and starts a server on it; says on which port.
    pub(super) fn start(bin_dir: &Path, options: &PostgresOptions) -> Result<(Self, u16)> {
        Self::start_on(bin_dir, options.parent.as_deref(), |home| {
            initialise(bin_dir, home)?;
            configure(&data_of(home), &options.configuration())
        })
    }

    /// Copies the data of the server on this port and starts a standby on it that streams from there.
    pub(super) fn start_standby(bin_dir: &Path, primary: u16) -> Result<(Self, u16)> {
        Self::start_on(bin_dir, None, |home| copy(bin_dir, home, primary))
    }

    fn start_on(
        bin_dir: &Path,
        parent: Option<&Path>,
        prepare: impl FnOnce(&Home) -> Result<()>,
    ) -> Result<(Self, u16)> {
        let home = Home::create("postrider-pg-", parent)?;
        let data = data_of(&home);
        let command = [bin_dir.join("postgres").into(), "-D".into(), data.clone().into()];
        // QUIT is the immediate shutdown. the guard comes first, so that it also removes what initdb leaves behind
        let guard = Guard::new(home, "QUIT", &command)?;
        prepare(guard.home())?;
        let mut server = Self { guard };
        let port = on_free_port(|port| {
            configure(&data, &line("port", &port.to_string()))?;
            server.guard.start_until(is_ready)
        })?;
        Ok((server, port))
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        data_of(self.guard.home())
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.guard.server()
    }

    pub(super) fn stop_immediate(&mut self) -> Result<()> {
        self.guard.stop()
    }

    /// While the postmaster is stopped it neither reaps nor forks, so the numbers of its children stay theirs.
    pub(super) fn kill_hard(&mut self) -> Result<()> {
        let Some(postmaster) = self.guard.server() else { return Ok(()) };
        kill(postmaster, Signal::SIGSTOP).context("cannot stop the postmaster")?;
        let children = children_of(postmaster);
        for pid in &children {
            kill(*pid, Signal::SIGKILL).with_context(|| format!("cannot kill the server process {pid}"))?;
        }
        kill(postmaster, Signal::SIGKILL).context("cannot kill the postmaster")?;
        self.guard.stop()?;
        let deadline = Instant::now() + RELEASED_WITHIN;
        while !children.iter().all(|pid| has_ended(*pid)) {
            ensure!(Instant::now() < deadline, "server processes are still there after SIGKILL");
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    pub(super) fn restart(&mut self) -> Result<()> {
        self.guard.stop()?;
        let deadline = Instant::now() + RELEASED_WITHIN;
        while let Err(error) = self.guard.start_until(is_ready) {
            if !is_in_the_way(&error) || Instant::now() > deadline {
                return Err(error.context("cannot start PostgreSQL again"));
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }
}

/// True when remains of the previous run hold the port or the shared memory; they go away by themselves.
fn is_in_the_way(error: &anyhow::Error) -> bool {
    was_taken(error) || format!("{error:#}").contains("still in use")
}

fn data_of(home: &Home) -> PathBuf {
    home.path().join("data")
}

fn initialise(bin_dir: &Path, home: &Home) -> Result<()> {
    let output = home
        .command(bin_dir.join("initdb"))
        .args(["--no-sync", "-A", "trust", "-U", "postgres", "--locale=C.UTF-8", "-E", "UTF8", "-D"])
        .arg(data_of(home))
        .output()
        .with_context(|| {
            format!("cannot run initdb in {}; may the account of the server read it?", bin_dir.display())
        })?;
    if !output.status.success() {
        let parent = home.path().parent().unwrap_or(home.path()).display();
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("initdb failed; may the account of the server enter {parent}? it says:\n{said}");
    }
    Ok(())
}

/// The copy has the settings of its primary, and notes where to stream from.
fn copy(bin_dir: &Path, home: &Home, primary: u16) -> Result<()> {
    let output = home
        .command(bin_dir.join("pg_basebackup"))
        .args(["--no-sync", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf"])
        .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &primary.to_string(), "-D"])
        .arg(data_of(home))
        .output()
        .with_context(|| format!("cannot run pg_basebackup in {}", bin_dir.display()))?;
    ensure!(output.status.success(), "pg_basebackup failed; it says:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn configure(data: &Path, lines: &str) -> Result<()> {
    let file = data.join("postgresql.conf");
    let mut open =
        OpenOptions::new().append(true).open(&file).with_context(|| format!("cannot open {}", file.display()))?;
    open.write_all(lines.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

/// The first line is the postmaster's process id, the eighth its state. A stale file has another process id.
fn is_ready(postmaster: Pid, home: &Home) -> bool {
    let text = fs::read_to_string(data_of(home).join("postmaster.pid")).unwrap_or_default();
    let mut lines = text.lines();
    lines.next() == Some(postmaster.to_string().as_str()) && lines.nth(6).map(str::trim_end) == Some("ready")
}
