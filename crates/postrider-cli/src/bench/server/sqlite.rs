//! SQLite: no server, a new file for each measurement in a directory of our own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use postrider::{Message, Outbox, SqliteStore, Store};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, Sqlite};
use tempfile::TempDir;
use uuid::Uuid;

use super::{CONNECTIONS, Client, Described, PREFIX, Server, Site, Table, Used, store_of};
use crate::bench::bare::{self, Loop, sqlite as sql};
use crate::bench::letter::Letters;
use crate::bench::scenario::Ack;
use crate::exit::Failure;

/// The write lock could not be had.
const BUSY: &str = "5";

const HISTORY: &str = "
    with recursive rows(n) as (select 1 union all select n + 1 from rows where n < ?)
    insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at)
    select 'bench', 'history', '{}', 'delivered', 1, cast(unixepoch() as integer) * 1000000 from rows";
const CHUNK: u32 = 100_000;

/// A directory for files.
pub struct SqliteServer {
    directory: TempDir,
    stale: Vec<String>,
}

impl SqliteServer {
    /// `sqlite:` is the directory for temporary files, `sqlite:PATH` another directory, to measure its disk.
    pub fn new(path: &str) -> Result<Self, Failure> {
        let path = path.strip_prefix("//").unwrap_or(path);
        let parent = if path.is_empty() { std::env::temp_dir() } else { PathBuf::from(path) };
        if !parent.is_dir() {
            return Err(Failure::usage(
                "sqlite:PATH names a directory for a benchmark, in which it makes one of its own; no file is opened",
            ));
        }
        let stale = stale(&parent);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
        let said = |error: std::io::Error| {
            Failure::failed(format!("no directory can be made in {}: {error}", parent.display()))
        };
        Ok(Self { directory: directory.map_err(said)?, stale })
    }
}

fn stale(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    ours.map(|entry| entry.path().display().to_string()).collect()
}

#[async_trait]
impl Server for SqliteServer {
    async fn describe(&self) -> Result<Described> {
        let site = self.new_site().await?;
        let pool = site.store.pool();
        let version = sqlx::query_scalar("select sqlite_version()").fetch_one(pool).await?;
        let mut settings = std::collections::BTreeMap::new();
        let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(pool).await?;
        settings.insert("journal_mode".to_owned(), mode);
        for name in ["synchronous", "page_size", "wal_autocheckpoint", "cache_size"] {
            let value: i64 = sqlx::query_scalar(AssertSqlSafe(format!("pragma {name}"))).fetch_one(pool).await?;
            settings.insert(name.to_owned(), value.to_string());
        }
        site.close().await;
        Ok(Described { database: "sqlite".into(), version, settings })
    }

    async fn site(&self) -> Result<Box<dyn Site>> {
        Ok(Box::new(self.new_site().await?))
    }

    /// It has no process of its own, and its log is written anew at every checkpoint.
    async fn used(&self) -> Result<Used> {
        Ok(Used::default())
    }

    async fn remove(&self) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.directory.path())?)
    }

    fn stale(&self) -> &[String] {
        &self.stale
    }
}

impl SqliteServer {
    async fn new_site(&self) -> Result<SqliteSite> {
        let file = self.directory.path().join(format!("{}.db", Uuid::now_v7()));
        let url = format!("sqlite:{}", file.display());
        let store = store_of!(&url, CONNECTIONS, Sqlite);
        store.migrate().await?;
        sql::create(store.pool()).await?;
        Ok(SqliteSite { store, url, file })
    }
}

struct SqliteSite {
    store: SqliteStore,
    url: String,
    file: PathBuf,
}

#[async_trait]
impl Site for SqliteSite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn url(&self) -> &str {
        &self.url
    }

    async fn client(&self, table: Table, letters: &Letters) -> Result<Box<dyn Client>> {
        let (connection, outbox) = (self.store.pool().acquire().await?, self.store.outbox());
        Ok(Box::new(SqliteClient { connection, outbox, table, letters: letters.clone() }))
    }

    async fn fill_bare(&self, from: u32, count: u32, letters: &Letters) -> Result<()> {
        sql::fill(self.store.pool(), from, count, letters).await
    }

    async fn bare(&self, table: Table, batch: u32, ack: Ack) -> Result<Box<dyn Loop>> {
        let table = if table == Table::Ours { "outbox_messages" } else { bare::TABLE };
        Ok(Box::new(sql::SqliteLoop::on(self.store.pool(), table, batch, ack).await?))
    }

    async fn open(&self) -> Result<i64> {
        let open = "select count(*) from outbox_messages where status <> 'delivered'";
        Ok(sqlx::query_scalar(open).fetch_one(self.store.pool()).await?)
    }

    async fn add_delivered(&self, rows: u32) -> Result<()> {
        for at in (0..rows).step_by(CHUNK as usize) {
            sqlx::query(HISTORY).bind(i64::from(CHUNK.min(rows - at))).execute(self.store.pool()).await?;
        }
        Ok(())
    }

    async fn snapshot(&self) -> Result<Box<dyn Send>> {
        let mut transaction = self.store.pool().begin_with("begin deferred").await?;
        sqlx::query("select 1 from outbox_messages limit 1").execute(&mut *transaction).await?;
        Ok(Box::new(transaction))
    }

    async fn settle_down(&self) -> Result<()> {
        sqlx::raw_sql("pragma wal_checkpoint(truncate)").execute(self.store.pool()).await?;
        Ok(())
    }

    async fn close(&self) {
        self.store.pool().close().await;
        for suffix in ["", "-wal", "-shm"] {
            let mut file = self.file.clone().into_os_string();
            file.push(suffix);
            // What is gone already is as well.
            let _ = std::fs::remove_file(file);
        }
    }
}

struct SqliteClient {
    connection: PoolConnection<Sqlite>,
    outbox: Outbox,
    table: Table,
    letters: Letters,
}

impl SqliteClient {
    async fn try_to_write(&mut self, first: u32, count: u32) -> Result<()> {
        let mut transaction = self.connection.begin_with("begin immediate").await?;
        match (self.table, count) {
            (Table::Ours, 1) => drop(self.outbox.enqueue(&mut transaction, self.letters.message(first)).await?),
            (Table::Ours, _) => {
                let messages = (first..first + count).map(|n| self.letters.message(n));
                self.outbox.enqueue_many(&mut transaction, messages).await?;
            }
            (Table::Bare, _) => {
                let rows = (first..first + count).map(|n| (Uuid::now_v7().to_string(), self.letters.text(n)));
                let insert = sqlx::query(AssertSqlSafe(sql::insert(count)));
                let insert = rows.fold(insert, |insert, (id, text)| insert.bind(id).bind(text));
                insert.execute(&mut *transaction).await?;
            }
        }
        Ok(transaction.commit().await?)
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
    error.and_then(|error| error.code()).is_some_and(|code| code == BUSY)
}

#[async_trait]
impl Client for SqliteClient {
    /// With many writers one may wait for the lock in vain for longer than the time limit; an application tries again.
    async fn write(&mut self, first: u32, count: u32) -> Result<()> {
        loop {
            match self.try_to_write(first, count).await {
                Err(error) if is_busy(&error) => {}
                done => return done,
            }
        }
    }

    async fn write_messages(&mut self, messages: Vec<Message>) -> Result<()> {
        if self.table == Table::Bare {
            return super::no_tenants();
        }
        let mut transaction = self.connection.begin_with("begin immediate").await?;
        self.outbox.enqueue_many(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }
}
