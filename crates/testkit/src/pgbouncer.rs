//! A private PgBouncer in transaction pooling mode.
//!
//! Promise: a pooler of its own on a free loopback port, that serves all databases of one private server, lets
//! everybody in as `postgres`, and is gone with the test process however that ends. Fails when PgBouncer is not
//! installed (the error names the package), and with its log when it does not start.
//!
//! It refuses the start-up parameters that a pooler out of the box refuses: sqlx clients connect with
//! `extra_float_digits(None)`. Debian's PgBouncer (1.18) does not follow prepared statements: each transaction may meet another server connection.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::home::Home;
use crate::port::on_free_port;
use crate::postgres::{self, Postgres};

/// How many server connections each database gets: few, so that clients do share them.
const POOL_SIZE: u16 = 5;

/// A running PgBouncer. Dropping it ends it.
pub struct PgBouncer {
    port: u16,
    database: String,
    guard: Guard,
}

impl PgBouncer {
    /// Starts a pooler in front of `postgres`; its address will name `database`.
    pub async fn start(postgres: &Postgres, database: &str) -> Result<Self> {
        let (upstream, database) = (postgres.port(), database.to_owned());
        tokio::task::spawn_blocking(move || {
            let (guard, port) = start(upstream).context("cannot start PgBouncer")?;
            Ok(Self { port, database, guard })
        })
        .await?
    }

    /// The address of the database through the pooler.
    pub fn url(&self) -> String {
        postgres::url(self.port, &self.database)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub fn pid(&self) -> Option<Pid> {
        self.guard.server()
    }
}

fn start(upstream: u16) -> Result<(Guard, u16)> {
    let program = find()?;
    let home = Home::create("postrider-pgbouncer-", None)?;
    let file = home.path().join("pgbouncer.ini");
    // it has no children and no data, so the hardest signal is the simplest
    let mut guard = Guard::new(home, "KILL", &[program.into(), file.clone().into()])?;
    let port = on_free_port(|port| {
        fs::write(&file, configuration(port, upstream)).with_context(|| format!("cannot write {}", file.display()))?;
        guard.start_until(|pid, home| is_ready(port, pid, home))
    })?;
    Ok((guard, port))
}

/// Debian keeps it in a directory that is not on everybody's search path.
fn find() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.is_file())
        .context("PgBouncer is not installed: install the Debian package pgbouncer")
}

fn configuration(port: u16, upstream: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={upstream} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL_SIZE}\n\
         max_client_conn = 300\n\
         server_idle_timeout = 2\n"
    )
}

/// Another process may answer on the port, so our own log must say that it is up as well.
fn is_ready(port: u16, pid: Pid, home: &Home) -> bool {
    let log = home.log_after(0);
    let ours = log.lines().any(|line| line.contains(&format!("[{pid}]")) && line.contains("process up"));
    ours && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
