//! A small shell process that starts a server, and ends it when the test process ends.
//!
//! Promise: the server and its directory are gone soon after the test process, also when that process was killed with
//! SIGKILL and no destructor ran. The guard reads from a pipe whose only write end is ours; the kernel closes it for us.
//! It fails only when the guard itself is killed. The guard is the server's parent, has a process group of its own
//! (so that Ctrl-C in a terminal does not reach it), and lives on when the server is killed and started again.
//!
//! All calls block for as long as the server takes; async callers use `spawn_blocking`. Nothing here belongs to an
//! async runtime, because one server is shared by tests that have a runtime each.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::home::Home;
use crate::pid::has_ended;

const SCRIPT: &str = include_str!("guard.sh");
/// The slowest of them needs ten seconds by itself; on a busy machine it may get little time.
const READY_WITHIN: Duration = Duration::from_secs(180);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// One server under guard. Dropping it ends the server and removes its directory.
pub(crate) struct Guard {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    home: Home,
    server: Option<Pid>,
}

impl Guard {
    /// Starts the guard, not yet the server. `signal` is the name of the signal that ends the server at once
    /// when it is ready; before that it is killed.
    pub(crate) fn new(home: Home, signal: &str, server: &[OsString]) -> Result<Self> {
        let mut process = home
            .command("/bin/sh")
            .args(["-c", SCRIPT, "postrider-guard", signal])
            .arg(home.path())
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the guard process with /bin/sh")?;
        let orders = process.stdin.take();
        let answers = process.stdout.take().context("the guard has no output")?;
        Ok(Self { process, orders, answers: BufReader::new(answers), home, server: None })
    }

    /// The directory of the server.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The process id of the server; nothing while it is stopped.
    pub(crate) fn server(&self) -> Option<Pid> {
        self.server
    }

    /// Starts the server and waits until `ready` says so. On failure the error has what the server logged.
    pub(crate) fn start_until(&mut self, ready: impl Fn(Pid, &Home) -> bool) -> Result<()> {
        let logged_before = self.home.log_after(0).len();
        let pid = Pid::from_raw(self.order("start")?.parse().context("the guard did not answer with a process id")?);
        self.server = Some(pid);
        let deadline = Instant::now() + READY_WITHIN;
        while !ready(pid, &self.home) {
            let problem = if has_ended(pid) {
                "the server ended while starting"
            } else if Instant::now() > deadline {
                "the server did not get ready in time"
            } else {
                std::thread::sleep(POLL_EVERY);
                continue;
            };
            self.stop()?;
            bail!("{problem}; its log says:\n{}", self.home.log_after(logged_before));
        }
        self.order("ready")?;
        Ok(())
    }

    /// Ends the server at once and waits until it has ended. Does nothing when there is none.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.order("stop")?;
        self.server = None;
        Ok(())
    }

    fn order(&mut self, order: &str) -> Result<String> {
        let orders = self.orders.as_mut().context("the guard was dismissed")?;
        writeln!(orders, "{order}").context("the guard process is gone")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).context("cannot read the guard's answer")?;
        if answer.is_empty() {
            bail!("the guard process ended without an answer to `{order}`");
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // closing the pipe is the signal; waiting makes the end visible to whoever looks next
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sleep` never handles QUIT, like a server in its first moments.
    #[test]
    fn a_server_that_does_not_handle_signals_yet_is_ended_too() -> Result<()> {
        let home = Home::create("postrider-guard-", None)?;
        let directory = home.path().to_path_buf();
        let mut guard = Guard::new(home, "QUIT", &["sleep".into(), "1000".into()])?;
        let pid = Pid::from_raw(guard.order("start")?.parse()?);
        assert!(!has_ended(pid));
        drop(guard);
        assert!(has_ended(pid) && !directory.exists());
        Ok(())
    }
}
