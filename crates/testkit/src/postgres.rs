//! A private PostgreSQL server.
//!
//! Promise: a server of its own on a free loopback port with an empty throw-away data directory, ready when `start`
//! returns, and gone with the test process however that ends. The superuser is `postgres`, without a password.
//! Fails when PostgreSQL is not installed (the error names the package), and with the server's log when it does not
//! start.
//!
//! Without [`PostgresOptions::durable`] a commit may be lost when the server is stopped or killed: use the durable mode
//! in tests that look at data after [`Postgres::restart`].

mod binaries;
mod database;
mod options;
mod server;
mod standby;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;

pub use database::Database;
pub(crate) use database::url;
pub use options::PostgresOptions;
use server::Server;

/// A running PostgreSQL server that only this test process uses. Dropping it ends the server.
pub struct Postgres {
    server: Arc<Mutex<Server>>,
    port: u16,
    bin_dir: PathBuf,
    data_dir: PathBuf,
}

impl Postgres {
    /// Starts a fast server that does not sync to disk.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Options for a server that differs from the usual one.
    pub fn builder() -> PostgresOptions {
        PostgresOptions::default()
    }

    /// The one server that all tests of this process share, started at the first call. Do not stop or kill it.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Postgres> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    pub(crate) async fn start_with(options: PostgresOptions) -> Result<Self> {
        tokio::task::spawn_blocking(move || {
            let bin_dir = binaries::find()?;
            let started = Server::start(&bin_dir, &options).context("cannot start PostgreSQL")?;
            Ok(Self::running(bin_dir, started))
        })
        .await?
    }

    fn running(bin_dir: PathBuf, (server, port): (Server, u16)) -> Self {
        let data_dir = server.data_dir();
        Self { server: Arc::new(Mutex::new(server)), port, bin_dir, data_dir }
    }

    /// The address of a database for clients.
    pub fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// The port on 127.0.0.1; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that has `psql` and `pgbench`.
    pub fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    /// The data directory; the log of the server is the file `log` beside it.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The process id of the postmaster; nothing while it is stopped. Waits while another task stops or starts it.
    pub fn pid(&self) -> Option<Pid> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).pid()
    }

    /// Creates an empty database with a name of its own. Safe to call from many tests at once.
    pub async fn create_database(&self) -> Result<Database> {
        Database::create(self.port).await
    }

    /// Cuts all client connections to a database, and says how many there were.
    pub async fn terminate_backends(&self, database: &str) -> Result<u64> {
        let mut admin = PgConnection::connect(&self.url("postgres")).await?;
        let ended = sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity \
             where datname = $1 and backend_type = 'client backend' and pid <> pg_backend_pid()",
        )
        .bind(database)
        .execute(&mut admin)
        .await?
        .rows_affected();
        admin.close().await?;
        Ok(ended)
    }

    /// Stops the server without a checkpoint, as `pg_ctl stop -m immediate` does; the next start recovers.
    pub async fn stop_immediate(&self) -> Result<()> {
        self.with_server(Server::stop_immediate).await
    }

    /// Kills the postmaster and all its processes with SIGKILL, as a crash of the machine would.
    pub async fn kill_hard(&self) -> Result<()> {
        self.with_server(Server::kill_hard).await
    }

    /// Starts the server again on the same port and data; stops it at once before, if it still runs.
    pub async fn restart(&self) -> Result<()> {
        self.with_server(Server::restart).await
    }

    async fn with_server(&self, act: fn(&mut Server) -> Result<()>) -> Result<()> {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || act(&mut server.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}
