//! A child process for fault tests: watched through its output, frozen and killed by signals.
//!
//! Promise: the child is killed when its [`Worker`] is dropped. When the test process itself is killed no destructor
//! runs, but the child's standard input closes: a worker program that must not be left behind ends when that happens.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
pub use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

/// A child process whose lines on standard output are collected. Its standard error is that of the test.
pub struct Worker {
    child: Child,
    output: watch::Receiver<Output>,
    // kept open for as long as the test lives: its end tells the child that the test is gone
    _stdin: Option<ChildStdin>,
}

#[derive(Default)]
struct Output {
    lines: Vec<String>,
    closed: bool,
}

impl Worker {
    /// Starts `program`; `env` is added to the environment of the test.
    pub fn spawn(program: impl AsRef<std::ffi::OsStr>, args: &[&str], env: &[(&str, &str)]) -> Result<Self> {
        let program = program.as_ref();
        let mut child = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("the worker has no output")?;
        let (sender, output) = watch::channel(Output::default());
        tokio::spawn(collect(BufReader::new(stdout).lines(), sender));
        Ok(Self { _stdin: child.stdin.take(), child, output })
    }

    /// The process id; fails when the worker has ended and was waited for.
    pub fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("the worker has ended")?;
        Ok(Pid::from_raw(i32::try_from(id)?))
    }

    /// Sends a signal; fails when the worker has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        nix::sys::signal::kill(self.pid()?, signal).with_context(|| format!("cannot send {signal} to the worker"))
    }

    /// Waits until the worker has ended.
    pub async fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(timeout, self.child.wait()).await;
        Ok(ended.map_err(|_| anyhow!("the worker still runs after {timeout:?}"))??)
    }

    /// The lines received so far.
    pub fn lines(&self) -> Vec<String> {
        self.output.borrow().lines.clone()
    }

    /// Waits for the first line that `wanted` accepts, among those received already too. Fails at the timeout, and at
    /// once when the output ends without such a line.
    pub async fn wait_for_line(&self, wanted: impl Fn(&str) -> bool, timeout: Duration) -> Result<String> {
        let find = |output: &Output| output.lines.iter().find(|line| wanted(line)).cloned();
        let mut output = self.output.clone();
        let seen = tokio::time::timeout(timeout, output.wait_for(|now| now.closed || find(now).is_some())).await;
        let found = match &seen {
            Ok(now) => find(now.as_ref().map_err(|_| anyhow!("the worker's output is no longer read"))?),
            Err(_) => None,
        };
        drop(seen);
        found.with_context(|| format!("no such line within {timeout:?}; the worker wrote {:#?}", self.lines()))
    }
}

async fn collect(mut lines: Lines<BufReader<ChildStdout>>, output: watch::Sender<Output>) {
    while let Ok(Some(line)) = lines.next_line().await {
        output.send_modify(|output| output.lines.push(line));
    }
    output.send_modify(|output| output.closed = true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::eventually;
    use std::os::unix::process::ExitStatusExt;

    const SOON: Duration = Duration::from_secs(120);

    fn shell(script: &str) -> Result<Worker> {
        Worker::spawn("/bin/sh", &["-c", script, "worker", "argument"], &[("WORD", "hello")])
    }

    fn state(pid: Pid) -> String {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
    }

    #[tokio::test]
    async fn lines_are_collected_and_the_exit_is_seen() -> Result<()> {
        let mut worker = shell("echo \"$WORD\"; echo \"$1\"; exit 3")?;
        assert_eq!(worker.wait_for_line(|line| line.starts_with("arg"), SOON).await?, "argument");
        assert_eq!(worker.wait(SOON).await?.code(), Some(3));
        assert_eq!(worker.lines(), ["hello", "argument"]);
        assert!(worker.signal(Signal::SIGTERM).is_err());
        Ok(())
    }

    #[tokio::test]
    async fn a_line_that_never_comes_fails_at_the_end_of_the_output() -> Result<()> {
        let worker = shell("echo one")?;
        let error = worker.wait_for_line(|line| line == "two", Duration::from_secs(3600)).await;
        assert!(error.is_err_and(|error| error.to_string().contains("\"one\"")));
        Ok(())
    }

    #[tokio::test]
    async fn a_worker_is_frozen_thawed_and_killed() -> Result<()> {
        let mut worker = shell("echo up; read line")?;
        worker.wait_for_line(|line| line == "up", SOON).await?;
        let pid = worker.pid()?;
        worker.signal(Signal::SIGSTOP)?;
        eventually(SOON, || async { state(pid).contains(") T ") }).await;
        worker.signal(Signal::SIGCONT)?;
        eventually(SOON, || async { state(pid).contains(") S ") }).await;
        assert!(worker.wait(Duration::from_millis(20)).await.is_err());
        worker.signal(Signal::SIGKILL)?;
        assert_eq!(worker.wait(SOON).await?.signal(), Some(9));
        Ok(())
    }

    #[tokio::test]
    async fn a_dropped_worker_is_killed() -> Result<()> {
        let worker = shell("trap '' TERM; echo up; exec sleep 1000")?;
        worker.wait_for_line(|line| line == "up", SOON).await?;
        let pid = worker.pid()?;
        drop(worker);
        eventually(SOON, || async { crate::pid::has_ended(pid) }).await;
        Ok(())
    }
}
