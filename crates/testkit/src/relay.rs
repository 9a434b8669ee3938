//! A running `postrider run`: the real binary as a child process, with its output in files.
//!
//! Promise: the process is killed when its [`Relay`] is dropped, and its files are gone with it.

use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::process::Signal;
use crate::wait::within;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The process and its files.
pub struct Relay {
    child: Child,
    directory: TempDir,
    admin: OnceLock<String>,
}

impl Relay {
    /// Starts a command that runs a relay; its working directory is one of its own.
    pub fn start(mut command: Command) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| std::fs::File::create(directory.path().join(name));
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
        let child = command.kill_on_drop(true).spawn().context("cannot start the relay")?;
        Ok(Self { child, directory, admin: OnceLock::new() })
    }

    /// Waits until it delivers.
    pub async fn until_it_delivers(&self) -> Result<()> {
        within(PATIENCE, "delivering", || async { self.log().contains("\"message\":\"delivering\"") })
            .await
            .with_context(|| self.log())
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.directory.path().join(name)).unwrap_or_default()).into_owned()
    }

    /// The directory of its files: `err` has what it logged and `out` what it wrote to standard output.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.read("err")
    }

    /// What it wrote to standard output so far.
    pub fn out(&self) -> String {
        self.read("out")
    }

    /// The process id; fails when it has ended and was waited for.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("it has ended")
    }

    /// Sends a signal; fails when it has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(nix::sys::signal::kill(Pid::from_raw(i32::try_from(self.pid()?)?), signal)?)
    }

    /// Waits for its end; the exit code, or -1 after a signal.
    pub async fn ended(&mut self, limit: Duration) -> Result<i32> {
        let status = tokio::time::timeout(limit, self.child.wait()).await;
        let status = status.with_context(|| format!("it still runs after {limit:?}: {}", self.log()))??;
        Ok(status.code().unwrap_or(-1))
    }

    /// Stops it gracefully; the exit code.
    pub async fn stop(&mut self) -> Result<i32> {
        self.signal(Signal::SIGTERM)?;
        self.ended(PATIENCE).await
    }

    /// Where the admin endpoint listens; the log must be in JSON.
    pub async fn admin(&self) -> Result<String> {
        // a log may be large, and it says so once
        if let Some(known) = self.admin.get() {
            return Ok(known.clone());
        }
        let find = || {
            let log = self.log();
            let line = log.lines().find(|line| line.contains("health checks and metrics"))?.to_owned();
            let line: Value = serde_json::from_str(&line).ok()?;
            Some(line["address"].as_str()?.to_owned())
        };
        within(PATIENCE, "the admin endpoint", || async { find().is_some() }).await.with_context(|| self.log())?;
        let address = find().context("no address")?;
        Ok(self.admin.get_or_init(|| address).clone())
    }

    /// Asks the admin endpoint.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("http://{}{path}", self.admin().await?);
        let answer = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?.get(url).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}
