//! A private MariaDB server.
//!
//! Promise: a server of its own on a free loopback port with an empty throw-away data directory, ready when `start`
//! returns, and gone with the test process however that ends. The account is `postrider`, with a password, and may do
//! everything. Fails when MariaDB is not installed (the error names the package), and with the server's log when it does
//! not start.
//!
//! Without [`MariaDbOptions::durable`] a commit may be lost when the server is killed: use the durable mode in tests
//! that look at data after [`MariaDb::kill`].
//!
//! The variable `POSTRIDER_TEST_MYSQL_URL` makes [`MariaDb::shared`] use a server that runs already, for instance MySQL
//! 8, instead of starting one: `POSTRIDER_TEST_MYSQL_URL=mysql://root:secret@127.0.0.1:3306 cargo test -p testkit --test
//! conformance_mysql`. The account must be allowed to create databases and accounts; the databases of the tests stay.

mod database;
mod options;
mod server;

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;
use sqlx::mysql::MySqlConnectOptions;
use tokio::sync::OnceCell;

pub use database::MySqlDatabase;
pub use options::MariaDbOptions;
use server::Server;

/// The account of the tests.
const USER: &str = "postrider";
/// Its password.
const PASSWORD: &str = "only-for-tests";
/// Names a server that is there already.
const VARIABLE: &str = "POSTRIDER_TEST_MYSQL_URL";

/// A running MariaDB server that only this test process uses. Dropping it ends the server.
pub struct MariaDb {
    /// Nothing if somebody else runs it.
    server: Option<Arc<Mutex<Server>>>,
    access: MySqlConnectOptions,
}

impl MariaDb {
    /// Starts a fast server that does not sync to disk.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Options for a server that differs from the usual one.
    pub fn builder() -> MariaDbOptions {
        MariaDbOptions::default()
    }

    /// The one server that all tests of this process share, started at the first call. Do not stop or kill it.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<MariaDb> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start_or_borrow).await
    }

    async fn start_or_borrow() -> Result<Self> {
        match std::env::var(VARIABLE) {
            Ok(url) => {
                let access = MySqlConnectOptions::from_str(&url)
                    .with_context(|| format!("{VARIABLE} is not an address like mysql://user:password@host:port"))?;
                Ok(Self { server: None, access })
            }
            Err(_) => Self::start().await,
        }
    }

    pub(crate) async fn start_with(options: MariaDbOptions) -> Result<Self> {
        tokio::task::spawn_blocking(move || {
            let (server, port) = Server::start(&options).context("cannot start MariaDB")?;
            let access = MySqlConnectOptions::new().host("127.0.0.1").port(port).username(USER).password(PASSWORD);
            Ok(Self { server: Some(Arc::new(Mutex::new(server))), access })
        })
        .await?
    }

    /// How clients get in, without a database.
    pub fn access(&self) -> &MySqlConnectOptions {
        &self.access
    }

    /// The port; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.access.get_port()
    }

    /// The process id of the server; nothing while it is stopped, or if somebody else runs it.
    pub fn pid(&self) -> Option<Pid> {
        let server = self.server.as_ref()?;
        server.lock().unwrap_or_else(PoisonError::into_inner).pid()
    }

    /// Creates an empty database with a name of its own. Safe to call from many tests at once.
    pub async fn create_database(&self) -> Result<MySqlDatabase> {
        MySqlDatabase::create(&self.access).await
    }

    /// Kills the server with SIGKILL, as a crash of the machine would.
    pub async fn kill(&self) -> Result<()> {
        self.with_server(Server::kill).await
    }

    /// Starts the server again on the same port and data; kills it before, if it still runs.
    pub async fn restart(&self) -> Result<()> {
        self.with_server(Server::restart).await
    }

    async fn with_server(&self, act: fn(&mut Server) -> Result<()>) -> Result<()> {
        let Some(server) = self.server.clone() else { bail!("the server that {VARIABLE} names is not ours to stop") };
        tokio::task::spawn_blocking(move || act(&mut server.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}
