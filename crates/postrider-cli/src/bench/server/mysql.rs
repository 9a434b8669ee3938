//! MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use postrider::{EnqueueError, Message, MySqlStore, Outbox, Store};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlPool, Row};
use uuid::Uuid;

use super::{CONNECTIONS, Client, Described, PREFIX, Server, Site, Table, Used, new_name, store_of, with_database};
use crate::bench::bare::{self, Loop, mysql as sql};
use crate::bench::letter::Letters;
use crate::bench::meter::processes::Tree;
use crate::bench::scenario::Ack;
use crate::exit::Failure;

/// Access denied to a database, and by the lack of a privilege.
const MAY_NOT: [&str; 3] = ["42000", "1044", "1227"];
/// There is no checkpoint to ask for; the writers get a moment.
const MOMENT: Duration = Duration::from_secs(3);
/// How many rows make that moment worth its while.
const MANY: u32 = 10_000;

#[rustfmt::skip]
const MATTER: [&str; 8] = [
    "innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size", "innodb_log_file_size", "innodb_doublewrite", "sync_binlog",
    "log_bin", "max_connections", "innodb_flush_method",
];

/// Ten times ten times …: a hundred thousand rows on every version, without a recursion's limits.
const HISTORY: &str = "
    insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at)
    select 'bench', 'history', '{}', 'delivered', 1, utc_timestamp(6)
    from ({digits}) a, ({digits}) b, ({digits}) c, ({digits}) d, ({digits}) e limit {rows}";
const CHUNK: u32 = 100_000;

/// A server with a database that is ours.
pub struct MySqlServer {
    admin: MySqlPool,
    name: String,
    url: String,
    stale: Vec<String>,
    /// The server's process, if it runs on this machine.
    tree: Option<Tree>,
}

impl MySqlServer {
    pub async fn create(url: &str) -> Result<Self, Failure> {
        let admin = admin(url).await?;
        let stale: Vec<String> = sqlx::query("show databases").fetch_all(&admin).await.map_or_else(
            |_| Vec::new(),
            |rows| rows.iter().filter_map(|row| row.try_get::<String, _>(0).ok()).collect(),
        );
        let stale = stale.into_iter().filter(|name| name.starts_with(PREFIX)).collect();
        let name = new_name();
        match sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&admin).await {
            Err(error) if may_not(&error) => {
                return Err(Failure::failed(
                    "the user may not create databases, and a benchmark makes one of its own so that it touches nothing else; \
                     give it the right (grant all on `postrider\\_bench\\_%`.* to …), or name another server",
                ));
            }
            done => done.map(drop).context("cannot create a database for the benchmark")?,
        }
        let tree = tree(&admin).await;
        Ok(Self { url: with_database(url, &name)?, admin, name, stale, tree })
    }
}

async fn admin(url: &str) -> Result<MySqlPool, anyhow::Error> {
    Ok(store_of!(url, 2, MySql).pool().clone())
}

fn may_not(error: &sqlx::Error) -> bool {
    let database = error.as_database_error();
    database.and_then(|error| error.code()).is_some_and(|code| MAY_NOT.contains(&&*code))
}

/// The server's process by its own file. Only if that process was started when the server says it was, so that another server's
/// file of the same name is not taken for ours.
async fn tree(admin: &MySqlPool) -> Option<Tree> {
    let ask = "select cast(@@pid_file as char), cast(@@datadir as char), cast(@@hostname as char)";
    let row = sqlx::query(ask).fetch_one(admin).await.ok()?;
    let (file, directory, host): (String, String, String) =
        (row.try_get(0).ok()?, row.try_get(1).ok()?, row.try_get(2).ok()?);
    if nix::unistd::gethostname().ok()?.to_str()? != host {
        return None;
    }
    let pid = std::fs::read_to_string(std::path::Path::new(&directory).join(file)).ok()?.trim().parse().ok()?;
    Tree::of_server(pid, Duration::from_secs(status(admin, "Uptime").await?))
}

/// A counter of the server.
async fn status(admin: &MySqlPool, name: &str) -> Option<u64> {
    let show = AssertSqlSafe(format!("show global status like '{name}'"));
    let row = sqlx::raw_sql(show).fetch_one(admin).await.ok()?;
    row.try_get::<String, _>(1).ok()?.parse().ok()
}

#[async_trait]
impl Server for MySqlServer {
    async fn describe(&self) -> Result<Described> {
        let version = sqlx::query_scalar("select version()").fetch_one(&self.admin).await?;
        let mut settings = std::collections::BTreeMap::new();
        for name in MATTER {
            let ask = AssertSqlSafe(format!("select cast(@@global.{name} as char)"));
            if let Ok(value) = sqlx::query_scalar(ask).fetch_one(&self.admin).await {
                settings.insert(name.to_owned(), value);
            }
        }
        Ok(Described { database: "mysql".into(), version, settings })
    }

    async fn site(&self) -> Result<Box<dyn Site>> {
        let store = store_of!(&self.url, CONNECTIONS, MySql);
        store.migrate().await?;
        sql::create(store.pool()).await?;
        for table in ["outbox_messages", bare::TABLE] {
            sqlx::raw_sql(AssertSqlSafe(format!("truncate table {table}"))).execute(store.pool()).await?;
        }
        Ok(Box::new(MySqlSite { store, url: self.url.clone() }))
    }

    async fn used(&self) -> Result<Used> {
        let log = status(&self.admin, "Innodb_os_log_written").await;
        Ok(Used { cpu: self.tree.as_ref().and_then(Tree::cpu), log })
    }

    async fn remove(&self) -> Result<()> {
        let name = &self.name;
        let dropped =
            sqlx::raw_sql(AssertSqlSafe(format!("drop database if exists {name}"))).execute(&self.admin).await;
        dropped.with_context(|| format!("the database {name} is left behind; drop it with: drop database {name}"))?;
        Ok(())
    }

    fn stale(&self) -> &[String] {
        &self.stale
    }
}

struct MySqlSite {
    store: MySqlStore,
    url: String,
}

#[async_trait]
impl Site for MySqlSite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn url(&self) -> &str {
        &self.url
    }

    async fn client(&self, table: Table, letters: &Letters) -> Result<Box<dyn Client>> {
        let (connection, outbox) = (self.store.pool().acquire().await?, self.store.outbox());
        Ok(Box::new(MySqlClient { connection, outbox, table, letters: letters.clone() }))
    }

    async fn fill_bare(&self, from: u32, count: u32, letters: &Letters) -> Result<()> {
        sql::fill(self.store.pool(), from, count, letters).await
    }

    async fn bare(&self, table: Table, batch: u32, ack: Ack) -> Result<Box<dyn Loop>> {
        let table = if table == Table::Ours { "outbox_messages" } else { bare::TABLE };
        Ok(Box::new(sql::MySqlLoop::on(self.store.pool(), table, batch, ack).await?))
    }

    async fn open(&self) -> Result<i64> {
        let open = "select count(*) from outbox_messages where status in ('pending', 'processing', 'dead')";
        Ok(sqlx::query_scalar(open).fetch_one(self.store.pool()).await?)
    }

    async fn add_delivered(&self, rows: u32) -> Result<()> {
        let digits = (0..10).map(|digit| format!("select {digit}")).collect::<Vec<_>>().join(" union all ");
        for at in (0..rows).step_by(CHUNK as usize) {
            let chunk = CHUNK.min(rows - at).to_string();
            let insert = HISTORY.replace("{digits}", &digits).replace("{rows}", &chunk);
            sqlx::raw_sql(AssertSqlSafe(insert)).execute(self.store.pool()).await?;
        }
        Ok(())
    }

    async fn snapshot(&self) -> Result<Box<dyn Send>> {
        let mut transaction =
            self.store.pool().begin_with("start transaction with consistent snapshot, read only").await?;
        sqlx::query("select 1 from outbox_messages limit 1").execute(&mut *transaction).await?;
        Ok(Box::new(transaction))
    }

    async fn settle_down(&self) -> Result<()> {
        let newest: Option<i64> =
            sqlx::query_scalar("select max(seq) from outbox_messages").fetch_one(self.store.pool()).await?;
        let of_bare: Option<i64> = sqlx::query_scalar("select max(seq) from bare").fetch_one(self.store.pool()).await?;
        if newest.max(of_bare).unwrap_or_default() >= i64::from(MANY) {
            tokio::time::sleep(MOMENT).await;
        }
        Ok(())
    }

    async fn close(&self) {
        self.store.pool().close().await;
    }
}

struct MySqlClient {
    connection: PoolConnection<MySql>,
    outbox: Outbox,
    table: Table,
    letters: Letters,
}

impl MySqlClient {
    async fn try_to_write(&mut self, first: u32, count: u32) -> Result<()> {
        let mut transaction = self.connection.begin().await?;
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

#[async_trait]
impl Client for MySqlClient {
    /// Deadlocks are part of life on MySQL; an application tries again.
    async fn write(&mut self, first: u32, count: u32) -> Result<()> {
        let is_conflict = |error: &anyhow::Error| error.downcast_ref().is_some_and(EnqueueError::is_retryable);
        loop {
            match self.try_to_write(first, count).await {
                Err(error) if is_conflict(&error) || sql::is_deadlock(&error) => {}
                done => return done,
            }
        }
    }

    async fn write_messages(&mut self, messages: Vec<Message>) -> Result<()> {
        if self.table == Table::Bare {
            return super::no_tenants();
        }
        let mut transaction = self.connection.begin().await?;
        self.outbox.enqueue_many(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }
}
