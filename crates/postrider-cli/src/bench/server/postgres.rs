//! PostgreSQL.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use postrider::{Message, Outbox, PostgresStore, Store};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, PgPool, Postgres, Row};
use uuid::Uuid;

use super::{CONNECTIONS, Client, Described, PREFIX, Server, Site, Table, Used, new_name, store_of, with_database};
use crate::bench::bare::{self, Loop, postgres as sql};
use crate::bench::letter::Letters;
use crate::bench::meter::processes::Tree;
use crate::bench::scenario::Ack;
use crate::exit::Failure;

/// SQLSTATE insufficient_privilege.
const MAY_NOT: &str = "42501";
/// One statement adds so many.
const CHUNK: u32 = 100_000;

const SETTINGS: &str = "select name, current_setting(name) from pg_settings where name = any ($1) order by name";
#[rustfmt::skip]
const MATTER: [&str; 11] = [
    "fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_compression", "shared_buffers", "max_wal_size",
    "checkpoint_timeout", "autovacuum", "max_connections", "data_checksums",
];

const HISTORY: &str = "
    insert into outbox_messages (namespace, topic, payload, status, attempts, created_at, updated_at, next_attempt_at, delivered_at)
    select 'bench', 'history', '{}', 'delivered', 1, now(), now(), now(), now() from generate_series(1, $1)";

/// A server with a database that is ours.
pub struct PostgresServer {
    admin: PgPool,
    name: String,
    url: String,
    stale: Vec<String>,
    /// The server's processes, if it runs on this machine.
    tree: Option<Tree>,
}

impl PostgresServer {
    pub async fn create(url: &str) -> Result<Self, Failure> {
        let admin = admin(url).await?;
        let stale = sqlx::query_scalar("select datname from pg_database where starts_with(datname, $1) order by 1");
        let stale = stale.bind(PREFIX).fetch_all(&admin).await.context("cannot list databases")?;
        let name = new_name();
        // Nobody can be connected to template0, and it has nothing of the site's own in it.
        let create = AssertSqlSafe(format!("create database {name} template template0"));
        match sqlx::raw_sql(create).execute(&admin).await {
            Err(error) if code(&error).as_deref() == Some(MAY_NOT) => {
                return Err(Failure::failed(
                    "the role may not create databases, and a benchmark makes one of its own so that it touches nothing else; \
                     give it the right (alter role … createdb), or name another server",
                ));
            }
            done => done.map(drop).context("cannot create a database for the benchmark")?,
        }
        let url = with_database(url, &name)?;
        Ok(Self { tree: tree(&url, &name).await, admin, name, url, stale })
    }
}

async fn admin(url: &str) -> Result<PgPool, anyhow::Error> {
    Ok(store_of!(url, 2, Postgres).pool().clone())
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(Into::into)
}

/// The server's processes: the parent of our backend and all its children. Only if that backend's title names our database, so that
/// a server elsewhere, or in a container with numbers of its own, is never taken for one that happens to have the number here.
async fn tree(url: &str, name: &str) -> Option<Tree> {
    let store = async { anyhow::Ok(store_of!(url, 1, Postgres)) }.await.ok()?;
    let mut connection = store.pool().acquire().await.ok()?;
    let backend: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *connection).await.ok()?;
    Tree::of_backend(backend, name)
}

#[async_trait]
impl Server for PostgresServer {
    async fn describe(&self) -> Result<Described> {
        let version = sqlx::query_scalar("select current_setting('server_version')").fetch_one(&self.admin).await?;
        let names: Vec<&str> = MATTER.to_vec();
        let rows = sqlx::query(SETTINGS).bind(names).fetch_all(&self.admin).await?;
        let setting = |row: sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let settings = rows.into_iter().map(setting).collect::<Result<_, sqlx::Error>>()?;
        Ok(Described { database: "postgres".into(), version, settings })
    }

    async fn site(&self) -> Result<Box<dyn Site>> {
        let store = store_of!(&self.url, CONNECTIONS, Postgres);
        store.migrate().await?;
        sql::create(store.pool()).await?;
        // New files for both, as if they had just been made.
        sqlx::raw_sql("truncate outbox_messages, bare").execute(store.pool()).await?;
        Ok(Box::new(PostgresSite { store, url: self.url.clone() }))
    }

    async fn used(&self) -> Result<Used> {
        let position = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        let log: i64 = sqlx::query_scalar(position).fetch_one(&self.admin).await?;
        Ok(Used { cpu: self.tree.as_ref().and_then(Tree::cpu), log: u64::try_from(log).ok() })
    }

    async fn remove(&self) -> Result<()> {
        let name = &self.name;
        let drop = AssertSqlSafe(format!("drop database if exists {name} with (force)"));
        let dropped = sqlx::raw_sql(drop).execute(&self.admin).await;
        dropped.with_context(|| format!("the database {name} is left behind; drop it with: drop database {name}"))?;
        Ok(())
    }

    fn stale(&self) -> &[String] {
        &self.stale
    }
}

struct PostgresSite {
    store: PostgresStore,
    url: String,
}

#[async_trait]
impl Site for PostgresSite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn url(&self) -> &str {
        &self.url
    }

    async fn client(&self, table: Table, letters: &Letters) -> Result<Box<dyn Client>> {
        let (connection, outbox) = (self.store.pool().acquire().await?, self.store.outbox());
        Ok(Box::new(PostgresClient { connection, outbox, table, letters: letters.clone() }))
    }

    async fn fill_bare(&self, from: u32, count: u32, letters: &Letters) -> Result<()> {
        sql::fill(self.store.pool(), from, count, letters).await
    }

    async fn bare(&self, table: Table, batch: u32, ack: Ack) -> Result<Box<dyn Loop>> {
        let table = if table == Table::Ours { "outbox_messages" } else { bare::TABLE };
        Ok(Box::new(sql::PostgresLoop::on(self.store.pool(), table, batch, ack).await?))
    }

    async fn open(&self) -> Result<i64> {
        let open = "select count(*) from outbox_messages where status in ('pending', 'processing', 'dead')";
        Ok(sqlx::query_scalar(open).fetch_one(self.store.pool()).await?)
    }

    async fn add_delivered(&self, rows: u32) -> Result<()> {
        for at in (0..rows).step_by(CHUNK as usize) {
            let chunk = i64::from(CHUNK.min(rows - at));
            sqlx::query(HISTORY).bind(chunk).execute(self.store.pool()).await?;
        }
        Ok(())
    }

    async fn snapshot(&self) -> Result<Box<dyn Send>> {
        let mut transaction = self.store.pool().begin_with("begin isolation level repeatable read read only").await?;
        // The snapshot is taken by the first statement.
        sqlx::query("select 1 from outbox_messages limit 1").execute(&mut *transaction).await?;
        Ok(Box::new(transaction))
    }

    async fn settle_down(&self) -> Result<()> {
        sqlx::raw_sql("vacuum analyze outbox_messages").execute(self.store.pool()).await?;
        sqlx::raw_sql("vacuum analyze bare").execute(self.store.pool()).await?;
        // Only some roles may; without it the server's own checkpoints fall where they fall.
        let _refused = sqlx::raw_sql("checkpoint").execute(self.store.pool()).await;
        Ok(())
    }

    async fn close(&self) {
        self.store.pool().close().await;
    }
}

struct PostgresClient {
    connection: PoolConnection<Postgres>,
    outbox: Outbox,
    table: Table,
    letters: Letters,
}

#[async_trait]
impl Client for PostgresClient {
    async fn write(&mut self, first: u32, count: u32) -> Result<()> {
        let mut transaction = self.connection.begin().await?;
        match (self.table, count) {
            (Table::Ours, 1) => drop(self.outbox.enqueue(&mut transaction, self.letters.message(first)).await?),
            (Table::Ours, _) => {
                let messages = (first..first + count).map(|n| self.letters.message(n));
                self.outbox.enqueue_many(&mut transaction, messages).await?;
            }
            (Table::Bare, 1) => {
                let insert = sqlx::query(sql::INSERT).bind(Uuid::now_v7()).bind(self.letters.text(first));
                insert.execute(&mut *transaction).await?;
            }
            (Table::Bare, _) => {
                let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
                let texts: Vec<String> = (first..first + count).map(|n| self.letters.text(n)).collect();
                sqlx::query(sql::INSERT_MANY).bind(ids).bind(texts).execute(&mut *transaction).await?;
            }
        }
        Ok(transaction.commit().await?)
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
