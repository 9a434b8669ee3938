//! The database of a run: its server, the ways to it, and the disk it is on.
//!
//! Relays and producers reach it by a proxy each; the run itself goes there directly. Every relay process has an account of its
//! own, so that the checkers know who changed a row; SQLite has no accounts, and there nobody is told apart.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::disk::Disk;
use super::plan::{Fault, Kind, Length, Plan};
use super::secret::DATABASE_PASSWORD;
use crate::mariadb::{MariaDb, MySqlDatabase};
use crate::postgres::{Database, Postgres};
use crate::proxy::Proxy;
use crate::source::Source;
use crate::{checker, within};

/// A disk that an empty server of either make fits on, with some room.
const DISK: u64 = 256 << 20;
/// What a message takes on it with everything, at most.
const DISK_PER_MESSAGE: u64 = 6 << 10;
/// How many messages come, at most, in a second of a run that is as long as some time, and how many more than were asked for.
const MESSAGES_PER_SECOND: u64 = 250;
const MORE_MESSAGES: u64 = 20_000;
/// It is in memory.
const LARGEST_DISK: u64 = 4 << 30;
/// How long a server may take to let clients in again.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a file that nobody has locked may take to be written to.
const WRITABLE_WITHIN: Duration = Duration::from_millis(500);

/// COMMIT as a simple query of PostgreSQL: its letter, its length, its text. What is asked for is known for sure; what is
/// answered looks like other answers.
const POSTGRES_COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// COMMIT as a command of MySQL: seven bytes, the first packet, a query, its text.
const MARIADB_COMMIT: &[u8] = b"\x07\0\0\0\x03COMMIT";

// servers go before the disk that they are on
enum Server {
    Postgres(Postgres, Database),
    MariaDb(Box<MariaDb>, Box<MySqlDatabase>),
    Sqlite(PathBuf, #[allow(dead_code)] TempDir),
}

/// The ways of others to the server.
struct Ways {
    relays: Proxy,
    producers: Proxy,
}

/// A migrated outbox, watched by the checkers, with a ledger beside it.
pub struct Place {
    /// The direct way.
    pub source: Source,
    server: Server,
    ways: Option<Ways>,
    disk: Option<Disk>,
}

impl Place {
    /// Starts the server and makes the tables.
    pub async fn start(plan: &Plan) -> Result<Self> {
        let disk = plan.has(Fault::Disk).then(|| Disk::mount(room(plan))).transpose()?;
        // what a killed server had confirmed must be there again
        let is_durable = plan.has(Fault::Restart) || plan.has(Fault::Disk);
        let server = Server::start(plan.store, is_durable, disk.as_ref()).await?;
        let ways = match server.port() {
            Some(port) => {
                let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                Some(Ways { relays: Proxy::start(upstream).await?, producers: Proxy::start(upstream).await? })
            }
            None => None,
        };
        let source = Source::connect(&server.url(), "chaos", 4).await?;
        source.migrate().await?;
        source.run(LEDGER).await?;
        checker::watch(&source).await?;
        Ok(Self { source, server, ways, disk })
    }

    /// The way of producers.
    pub fn producers_url(&self) -> String {
        self.server.url_via(self.ways.as_ref().map(|ways| ways.producers.port()))
    }

    /// The way of a relay, with its account and password in it.
    pub fn relay_url(&self, account: &str) -> String {
        let port = self.ways.as_ref().map_or(0, |ways| ways.relays.port());
        let address = |scheme: &str, database: &str| {
            format!("{scheme}://{account}:{DATABASE_PASSWORD}@127.0.0.1:{port}/{database}")
        };
        match &self.server {
            Server::Postgres(_, database) => address("postgres", database.name()),
            Server::MariaDb(_, database) => address("mysql", database.name()),
            Server::Sqlite(..) => self.server.url(),
        }
    }

    /// Makes the account of a relay.
    pub async fn admit(&self, account: &str) -> Result<()> {
        let sql = match &self.server {
            Server::Postgres(..) => format!("create role {account} superuser login password '{DATABASE_PASSWORD}'"),
            Server::MariaDb(..) => format!(
                "create user {account}@`%` identified by '{DATABASE_PASSWORD}'; grant all on *.* to {account}@`%`"
            ),
            Server::Sqlite(..) => return Ok(()),
        };
        self.source.run(&sql).await.with_context(|| format!("cannot make the account {account}"))
    }

    /// The proxy of the relays.
    pub fn relays_way(&self) -> Result<&Proxy> {
        Ok(&self.ways.as_ref().context("SQLite has no network")?.relays)
    }

    /// How often a relay has connected.
    pub fn relays_connected(&self) -> usize {
        self.ways.as_ref().map_or(0, |ways| ways.relays.accepted())
    }

    /// Cuts the next replies to a producer's COMMIT in the middle.
    pub fn cut_commits(&self, times: usize) -> Result<()> {
        let commit = match &self.server {
            Server::MariaDb(..) => MARIADB_COMMIT,
            _ => POSTGRES_COMMIT,
        };
        self.ways.as_ref().context("SQLite has no network")?.producers.cut_replies_to(commit, times);
        Ok(())
    }

    /// How many messages are claimed by the relay whose leases have this length: each has one of its own, so that it is known
    /// on every database.
    pub async fn held(&self, lease: Duration) -> Result<usize> {
        let dialect = self.source.dialect();
        let sql = format!(
            "select count(*) from outbox_messages where status = 'processing' and {} - {} = {}",
            dialect.micros("locked_until"),
            dialect.micros("updated_at"),
            lease.as_micros()
        );
        Ok(usize::try_from(self.source.count(&sql).await?)?)
    }

    /// How many messages are neither delivered nor dead.
    pub async fn open(&self) -> Result<usize> {
        let sql = "select count(*) from outbox_messages where status in ('pending', 'processing')";
        Ok(usize::try_from(self.source.count(sql).await?)?)
    }

    /// Whether a relay that stands still has no transaction open. With one it keeps others from rows, and from all of SQLite's file.
    pub async fn has_let_go(&self, account: &str) -> bool {
        let sql = match &self.server {
            Server::Postgres(..) => {
                format!("select count(*) from pg_stat_activity where usename = '{account}' and xact_start is not null")
            }
            Server::MariaDb(..) => format!(
                "select count(*) from information_schema.innodb_trx join information_schema.processlist \
                 on id = trx_mysql_thread_id where user = '{account}'"
            ),
            Server::Sqlite(..) => {
                let probe = self.source.run("update ledger set place = place where 1 = 0");
                return tokio::time::timeout(WRITABLE_WITHIN, probe).await.is_ok_and(|done| done.is_ok());
            }
        };
        self.source.count(&sql).await.is_ok_and(|open| open == 0)
    }

    /// How many replies were cut.
    pub fn commits_cut(&self) -> usize {
        self.ways.as_ref().map_or(0, |ways| ways.producers.cuts())
    }

    /// The disk that can be filled.
    pub fn disk(&self) -> Result<&Disk> {
        self.disk.as_ref().context("no disk was mounted for this run")
    }

    /// Ends the server as a crash of the machine would.
    pub async fn kill(&self) -> Result<()> {
        match &self.server {
            Server::Postgres(server, _) => server.kill_hard().await,
            Server::MariaDb(server, _) => server.kill().await,
            Server::Sqlite(..) => bail!("SQLite has no server"),
        }
    }

    /// Ends the server without tidying up.
    pub async fn stop(&self) -> Result<()> {
        match &self.server {
            Server::Postgres(server, _) => server.stop_immediate().await,
            _ => self.kill().await,
        }
    }

    /// Starts the server again, and waits until it lets clients in.
    pub async fn restart(&self) -> Result<()> {
        match &self.server {
            Server::Postgres(server, _) => server.restart().await?,
            Server::MariaDb(server, _) => server.restart().await?,
            Server::Sqlite(..) => {}
        }
        self.until_ready(READY_WITHIN).await
    }

    async fn until_ready(&self, limit: Duration) -> Result<()> {
        within(limit, "a database that answers", || async {
            self.source.count("select count(*) from changes where 1 = 0").await.is_ok()
        })
        .await
    }

    /// Whatever a fault left behind is mended: the network, the disk and the server.
    pub async fn heal(&self) -> Result<()> {
        if let Some(ways) = &self.ways {
            ways.relays.set(crate::Mode::Pass);
        }
        if let Some(disk) = &self.disk {
            disk.free()?;
        }
        match self.until_ready(Duration::from_secs(10)).await {
            Ok(()) => Ok(()),
            // PostgreSQL gives up when it cannot even recover for lack of room.
            Err(_) => self.restart().await.context("is the disk too small for so long a run?"),
        }
    }

    /// What the database says about its own soundness; SQLite only.
    pub async fn integrity(&self) -> Result<Option<String>> {
        let Server::Sqlite(..) = &self.server else { return Ok(None) };
        let mut said = Vec::new();
        let take = |line: &str| {
            said.push(line.to_owned());
            Ok(())
        };
        self.source.each("pragma integrity_check", take).await?;
        Ok(Some(said.join(", ")).filter(|said| said != "ok"))
    }

    /// How coarse its clock is, in microseconds: SQLite counts milliseconds, as a fraction of a day.
    pub fn clock_grain(&self) -> i64 {
        if matches!(self.server, Server::Sqlite(..)) { 2_000 } else { 0 }
    }
}

/// How large the disk of a run has to be.
fn room(plan: &Plan) -> u64 {
    let Length { messages, time, .. } = plan.length;
    let in_time = time.map_or(0, |time| time.as_secs() * MESSAGES_PER_SECOND);
    let messages = in_time.max(messages.unwrap_or(0) as u64) + MORE_MESSAGES;
    (DISK + DISK_PER_MESSAGE * messages).min(LARGEST_DISK)
}

/// The application's own table: what it knows about each message that it committed.
const LEDGER: &str = "create table ledger (id char(36) primary key, contents bigint not null, place bigint not null, \
                      doomed int not null, lane varchar(60) not null)";

impl Server {
    async fn start(store: Kind, is_durable: bool, disk: Option<&Disk>) -> Result<Self> {
        match store {
            Kind::Postgres => {
                let mut options = Postgres::builder();
                if is_durable {
                    options = options.durable();
                }
                if let Some(disk) = disk {
                    let small = options.setting("max_wal_size", "64MB").setting("min_wal_size", "32MB");
                    options = small.directory(disk.path());
                }
                let server = options.start().await?;
                let database = server.create_database().await?;
                Ok(Self::Postgres(server, database))
            }
            Kind::MariaDb => {
                let mut options = MariaDb::builder();
                if is_durable {
                    options = options.durable();
                }
                if let Some(disk) = disk {
                    options = options.setting("innodb-log-file-size", "32M").directory(disk.path());
                }
                let server = options.start().await?;
                let database = server.create_database().await?;
                Ok(Self::MariaDb(Box::new(server), Box::new(database)))
            }
            Kind::Sqlite => {
                let parent = disk.map_or_else(std::env::temp_dir, |disk| disk.path().to_path_buf());
                let directory = tempfile::Builder::new().prefix("postrider-sqlite-").tempdir_in(parent)?;
                Ok(Self::Sqlite(directory.path().join("outbox.db"), directory))
            }
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::Postgres(server, _) => Some(server.port()),
            Self::MariaDb(server, _) => Some(server.port()),
            Self::Sqlite(..) => None,
        }
    }

    fn url(&self) -> String {
        self.url_via(self.port())
    }

    fn url_via(&self, port: Option<u16>) -> String {
        match self {
            Self::Postgres(_, database) => database.url_via(port.unwrap_or_default()),
            Self::MariaDb(_, database) => database.url_via(port.unwrap_or_default()),
            Self::Sqlite(file, _) => format!("sqlite:{}", file.display()),
        }
    }
}
