//! An outbox by its address, whatever database it is on, for programs and tests that run on all of them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use postrider::{Message, MySqlStore, Names, PostgresStore, SqliteStore, Store};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool};
use uuid::Uuid;

/// An outbox, with a ledger beside it that the application writes in the same transactions.
#[derive(Clone)]
#[allow(missing_docs)]
pub enum Source {
    Postgres(PgPool, PostgresStore),
    MySql(MySqlPool, MySqlStore),
    Sqlite(SqlitePool, SqliteStore),
}

/// Runs an expression for the pool and the store of each database.
macro_rules! on_each {
    ($source:expr, $pool:ident, $store:ident => $body:expr) => {
        match $source {
            Source::Postgres($pool, $store) => $body,
            Source::MySql($pool, $store) => $body,
            Source::Sqlite($pool, $store) => $body,
        }
    };
}

impl Source {
    /// Connects; `name` is what PostgreSQL calls the connections.
    pub async fn connect(url: &str, name: &str, connections: u32) -> Result<Self> {
        let names = Names::default();
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let options: PgConnectOptions = url.parse()?;
                let pool = PgPoolOptions::new().max_connections(connections);
                let pool = pool.connect_with(options.application_name(name)).await.context("cannot connect")?;
                Ok(Self::Postgres(pool.clone(), PostgresStore::new(pool, names)))
            }
            Some("mysql" | "mariadb") => {
                let pool = MySqlPoolOptions::new().max_connections(connections).connect(url).await?;
                Ok(Self::MySql(pool.clone(), MySqlStore::new(pool, names)))
            }
            Some("sqlite") => {
                let store = SqliteStore::open(url.trim_start_matches("sqlite:")).await?;
                Ok(Self::Sqlite(store.pool().clone(), store))
            }
            _ => bail!("{url} is not the address of a database that Postrider knows"),
        }
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        on_each!(self, _pool, store => Arc::new(store.clone()))
    }

    /// Migrates the outbox and makes the ledger.
    pub async fn prepare(&self) -> Result<()> {
        on_each!(self, pool, store => {
            store.migrate().await?;
            sqlx::raw_sql("create table ledger (id char(36) primary key)").execute(pool).await?;
        });
        Ok(())
    }

    /// Commits messages with a line in the ledger for each, in one transaction; answers their ids.
    pub async fn commit(&self, messages: Vec<Message>) -> Result<Vec<Uuid>> {
        let ids: Vec<Uuid> = messages.iter().map(Message::id).collect();
        let lines: Vec<String> = ids.iter().map(|id| format!("('{id}')")).collect();
        let ledger = format!("insert into ledger values {}", lines.join(", "));
        on_each!(self, pool, store => {
            let mut transaction = pool.begin().await?;
            sqlx::raw_sql(AssertSqlSafe(ledger)).execute(&mut *transaction).await?;
            store.outbox().enqueue_many(&mut transaction, messages).await?;
            transaction.commit().await?;
        });
        Ok(ids)
    }

    /// The ids that a query answers as text.
    pub async fn ids(&self, sql: &str) -> Result<Vec<Uuid>> {
        let sql = AssertSqlSafe(sql.to_owned());
        let texts: Vec<String> = on_each!(self, pool, _store => sqlx::query_scalar(sql).fetch_all(pool).await?);
        texts.iter().map(|text| Ok(text.trim().parse()?)).collect()
    }

    /// The number that a query answers.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        let sql = AssertSqlSafe(sql.to_owned());
        Ok(on_each!(self, pool, _store => sqlx::query_scalar(sql).fetch_one(pool).await?))
    }
}
