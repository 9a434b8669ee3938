//! A private NATS server with JetStream.
//!
//! Promise: a server of its own on a free loopback port with an empty throw-away store, ready when `start` returns, and
//! gone with the test process however that ends. It is ended with SIGKILL; what its streams had, they have again after
//! [`Nats::restart`]. Fails when the server is not there (the error names `scripts/python-env`), and with the server's
//! log when it does not start.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::venv;
use crate::guard::Guard;
use crate::home::Home;
use crate::port::{on_free_port, was_taken};

/// How long the port of a killed server may stay in the way of the next start.
const RELEASED_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A running NATS server that only this test process uses. Dropping it ends the server.
pub struct Nats {
    server: Arc<Mutex<Guard>>,
    port: u16,
}

/// What differs from the usual server.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    lines: Vec<String>,
    files: Vec<(String, String)>,
}

impl NatsOptions {
    /// Adds text to the server's configuration; `{home}` in it stands for the server's directory.
    pub fn line(mut self, text: impl Into<String>) -> Self {
        self.lines.push(text.into());
        self
    }

    /// Puts a file into the server's directory.
    pub fn file(mut self, name: impl Into<String>, content: impl Into<String>) -> Self {
        self.files.push((name.into(), content.into()));
        self
    }

    /// Starts the server.
    pub async fn start(self) -> Result<Nats> {
        tokio::task::spawn_blocking(move || start(&self).context("cannot start NATS")).await?
    }
}

impl Nats {
    /// Starts a server that lets everybody in.
    pub async fn start() -> Result<Self> {
        NatsOptions::default().start().await
    }

    /// Options for a server that differs from the usual one.
    pub fn builder() -> NatsOptions {
        NatsOptions::default()
    }

    /// The port on 127.0.0.1; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for clients without TLS.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The process id of the server; nothing while it is stopped.
    pub fn pid(&self) -> Option<Pid> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).server()
    }

    /// Freezes the server: connections stay open, and nothing is read or answered.
    pub fn freeze(&self) -> Result<()> {
        kill(self.pid().context("the server is stopped")?, Signal::SIGSTOP).context("cannot freeze the server")
    }

    /// The end of that.
    pub fn thaw(&self) -> Result<()> {
        kill(self.pid().context("the server is stopped")?, Signal::SIGCONT).context("cannot thaw the server")
    }

    /// Kills the server with SIGKILL.
    pub async fn kill(&self) -> Result<()> {
        self.with_server(Guard::stop).await
    }

    /// Starts the server again on the same port and store; kills it before, if it still runs.
    pub async fn restart(&self) -> Result<()> {
        self.with_server(restart).await
    }

    async fn with_server(&self, act: fn(&mut Guard) -> Result<()>) -> Result<()> {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || act(&mut server.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}

fn start(options: &NatsOptions) -> Result<Nats> {
    let program = venv::program("nats-server")?;
    let home = Home::create("postrider-nats-", None)?;
    let directory = home.path().to_path_buf();
    for (name, content) in &options.files {
        write(&directory.join(name), content)?;
    }
    let file = directory.join("nats.conf");
    let mut guard = Guard::new(home, "KILL", &[program.into(), "-c".into(), file.clone().into()])?;
    let port = on_free_port(|port| {
        write(&file, &configuration(options, &directory, port))?;
        guard.start_until(is_ready)
    })?;
    Ok(Nats { server: Arc::new(Mutex::new(guard)), port })
}

fn restart(guard: &mut Guard) -> Result<()> {
    guard.stop()?;
    let deadline = Instant::now() + RELEASED_WITHIN;
    while let Err(error) = guard.start_until(is_ready) {
        if !was_taken(&error) || Instant::now() > deadline {
            return Err(error.context("cannot start NATS again"));
        }
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

fn configuration(options: &NatsOptions, directory: &Path, port: u16) -> String {
    let home = directory.display().to_string();
    let lines = options.lines.join("\n").replace("{home}", &home);
    format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{home}/store\" }}\n{lines}\n")
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Another process may answer on the port, so our own log must say that it is up.
fn is_ready(pid: Pid, home: &Home) -> bool {
    let ours = format!("[{pid}]");
    home.log_after(0).lines().any(|line| line.starts_with(&ours) && line.contains("Server is ready"))
}
