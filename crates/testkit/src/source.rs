//! An outbox by its address, whatever database it is on, for programs and tests that run on all of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::{AnyStore, Connect, Message, Store};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

/// Longer than the tests' outages, so that a connection is waited for and not refused.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// An outbox, with a ledger beside it that the application writes in the same transactions.
#[derive(Clone)]
pub struct Source(AnyStore);

/// Runs an expression for the pool and the store of each database.
macro_rules! on_each {
    ($source:expr, $pool:ident, $store:ident => $body:expr) => {
        match &$source.0 {
            AnyStore::Postgres($store) => {
                let $pool = $store.pool();
                $body
            }
            AnyStore::MySql($store) => {
                let $pool = $store.pool();
                $body
            }
            AnyStore::Sqlite($store) => {
                let $pool = $store.pool();
                $body
            }
        }
    };
}

impl Source {
    /// Connects; `name` is what PostgreSQL calls the connections.
    pub async fn connect(url: &str, name: &str, connections: u32) -> Result<Self> {
        let options = Connect {
            connections,
            application_name: name.into(),
            create: true,
            connect_timeout: CONNECT_TIMEOUT,
            ..Connect::default()
        };
        let store = AnyStore::connect(url, &options).await?;
        store.ping().await?;
        Ok(Self(store))
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    /// Migrates the outbox and makes the ledger.
    pub async fn prepare(&self) -> Result<()> {
        self.0.migrate().await?;
        on_each!(self, pool, _store => {
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

    /// Runs statements, one or several.
    pub async fn run(&self, sql: &str) -> Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_each!(self, pool, _store => { sqlx::raw_sql(sql).execute(pool).await?; });
        Ok(())
    }

    /// The number that a query answers.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        let sql = AssertSqlSafe(sql.to_owned());
        Ok(on_each!(self, pool, _store => sqlx::query_scalar(sql).fetch_one(pool).await?))
    }
}
