//! A private Redis server, and a private cluster of three.
//!
//! Promise: a server of its own on a free loopback port with an empty throw-away directory, ready when `start` returns,
//! and gone with the test process however that ends. It is ended with SIGKILL. Without [`RedisOptions::durable`] it
//! keeps nothing on disk, so it is empty after [`Redis::restart`]. Fails when Redis is not installed (the error names the
//! package), and with the server's log when it does not start.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::home::Home;
use crate::port::{on_free_port, was_taken};
use crate::wait::within;

/// How long the port of a killed server may stay in the way of the next start.
const RELEASED_WITHIN: Duration = Duration::from_secs(120);
/// How long a cluster may take to agree.
const AGREED_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A running Redis server that only this test process uses. Dropping it ends the server.
pub struct Redis {
    server: Arc<Mutex<Guard>>,
    port: u16,
    options: RedisOptions,
}

/// What differs from the usual server.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    password: Option<String>,
    is_durable: bool,
    is_encrypted: bool,
    lines: Vec<String>,
    files: Vec<(String, String)>,
}

impl RedisOptions {
    /// Asks clients for a password.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Writes everything to disk before it answers, so that a restart finds it again.
    pub fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    /// Speaks TLS only, with this certificate and key in PEM.
    pub fn tls(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.is_encrypted = true;
        self.line("tls-cert-file {home}/cert.pem\ntls-key-file {home}/key.pem\ntls-ca-cert-file {home}/cert.pem")
            .line("tls-auth-clients no")
            .file("cert.pem", certificate)
            .file("key.pem", key)
    }

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
    pub async fn start(self) -> Result<Redis> {
        tokio::task::spawn_blocking(move || start(self).context("cannot start Redis")).await?
    }

    fn configuration(&self, directory: &Path, port: u16) -> String {
        let home = directory.display().to_string();
        let listen = if self.is_encrypted { "port 0\ntls-port" } else { "port" };
        let keep = if self.is_durable { "appendonly yes\nappendfsync always" } else { "appendonly no" };
        let password = self.password.iter().map(|password| format!("requirepass {password}\n")).collect::<String>();
        // The usual port of a cluster's own connections may be one that the kernel gives to others.
        let bus = port - 10_000;
        let lines = self.lines.join("\n").replace("{home}", &home);
        format!(
            "bind 127.0.0.1\n{listen} {port}\ncluster-port {bus}\ndir {home}\nsave \"\"\n{keep}\n{password}{lines}\n"
        )
    }
}

impl Redis {
    /// Starts a server that lets everybody in and keeps nothing.
    pub async fn start() -> Result<Self> {
        RedisOptions::default().start().await
    }

    /// Options for a server that differs from the usual one.
    pub fn builder() -> RedisOptions {
        RedisOptions::default()
    }

    /// The port on 127.0.0.1; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for clients, without the password.
    pub fn url(&self) -> String {
        let scheme = if self.options.is_encrypted { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The process id of the server; nothing while it is stopped.
    pub fn pid(&self) -> Option<Pid> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).server()
    }

    /// Runs one command, such as `["CONFIG", "SET", "maxmemory", "1mb"]`, and answers what it printed.
    pub async fn command(&self, words: &[&str]) -> Result<String> {
        let mut arguments: Vec<String> = vec!["-p".into(), self.port.to_string()];
        if let Some(password) = &self.options.password {
            arguments.extend(["-a".into(), password.clone(), "--no-auth-warning".into()]);
        }
        if self.options.is_encrypted {
            arguments.extend(["--tls".into(), "--insecure".into()]);
        }
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        tokio::task::spawn_blocking(move || ask(&arguments)).await?
    }

    /// Kills the server with SIGKILL.
    pub async fn kill(&self) -> Result<()> {
        self.with_server(Guard::stop).await
    }

    /// Starts the server again on the same port and directory; kills it before, if it still runs.
    pub async fn restart(&self) -> Result<()> {
        self.with_server(restart).await
    }

    async fn with_server(&self, act: fn(&mut Guard) -> Result<()>) -> Result<()> {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || act(&mut server.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}

/// Three servers that share the slots of one cluster, without replicas. Dropping it ends them.
pub struct RedisCluster {
    /// The servers.
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the servers and waits until all of them say that the cluster is complete.
    pub async fn start() -> Result<Self> {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let node = "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 5000";
            nodes.push(Redis::builder().line(node).start().await?);
        }
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let create = move || {
            let words = ["--cluster".to_owned(), "create".to_owned()].into_iter().chain(addresses);
            ask(&words.chain(["--cluster-yes".to_owned()]).collect::<Vec<_>>())
        };
        tokio::task::spawn_blocking(create).await?.context("cannot join the servers to a cluster")?;
        let complete = || async {
            let mut count = 0;
            for node in &nodes {
                let said = node.command(&["cluster", "info"]).await;
                count += usize::from(said.is_ok_and(|said| said.contains("cluster_state:ok")));
            }
            count == nodes.len()
        };
        within(AGREED_WITHIN, "a complete cluster", complete).await?;
        Ok(Self { nodes })
    }

    /// The addresses of all servers.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }
}

fn start(options: RedisOptions) -> Result<Redis> {
    let program = find("redis-server", "redis-server")?;
    let home = Home::create("postrider-redis-", None)?;
    let directory = home.path().to_path_buf();
    for (name, content) in &options.files {
        write(&directory.join(name), content)?;
    }
    let file = directory.join("redis.conf");
    let command: [OsString; 2] = [program.into(), file.clone().into()];
    let mut guard = Guard::new(home, "KILL", &command)?;
    let port = on_free_port(|port| {
        write(&file, &options.configuration(&directory, port))?;
        guard.start_until(is_ready)
    })?;
    Ok(Redis { server: Arc::new(Mutex::new(guard)), port, options })
}

fn restart(guard: &mut Guard) -> Result<()> {
    guard.stop()?;
    let deadline = Instant::now() + RELEASED_WITHIN;
    while let Err(error) = guard.start_until(is_ready) {
        if !was_taken(&error) || Instant::now() > deadline {
            return Err(error.context("cannot start Redis again"));
        }
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

fn ask(arguments: &[String]) -> Result<String> {
    let mut command = Command::new(find("redis-cli", "redis-tools")?);
    let ended = command.args(arguments).output().context("cannot run redis-cli")?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    ensure!(ended.status.success(), "redis-cli failed: {said}{}", String::from_utf8_lossy(&ended.stderr));
    Ok(said)
}

fn find(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]);
    match places.map(|directory| directory.join(program)).find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => bail!("{program} is not installed: install the Debian package {package}"),
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Another process may answer on the port, so our own log must say that it is up.
fn is_ready(pid: Pid, home: &Home) -> bool {
    let ours = format!("{pid}:M");
    home.log_after(0).lines().any(|line| line.starts_with(&ours) && line.contains("Ready to accept connections"))
}
