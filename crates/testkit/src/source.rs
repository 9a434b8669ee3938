//! An outbox by its address, whatever database it is on, for programs and tests that run on all of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::TryStreamExt;
use postrider::{AnyStore, Connect, Message, Store};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

/// Longer than the tests' outages, so that a connection is waited for and not refused.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// An outbox, with a ledger beside it that the application writes in the same transactions.
#[derive(Clone)]
pub struct Source(AnyStore);

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Commit,
    /// The application thinks better of it.
    Rollback,
    /// Nobody ends it, as when the caller fails: the driver takes it back.
    Drop,
}

/// What differs between the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // their names
pub enum Dialect {
    Postgres,
    MySql,
    Sqlite,
}

impl Dialect {
    /// A column with a time, as microseconds since 1970.
    pub fn micros(self, column: &str) -> String {
        match self {
            Self::Postgres => format!("(extract(epoch from {column}) * 1000000)::bigint"),
            Self::MySql => format!("timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', {column})"),
            Self::Sqlite => column.to_owned(),
        }
    }

    /// The time of the moment, as microseconds since 1970.
    pub fn now_micros(self) -> String {
        match self {
            Self::Postgres => self.micros("clock_timestamp()"),
            Self::MySql => self.micros("utc_timestamp(6)"),
            Self::Sqlite => "cast((julianday('now') - 2440587.5) * 86400000000 as integer)".into(),
        }
    }
}

impl From<AnyStore> for Source {
    fn from(store: AnyStore) -> Self {
        Self(store)
    }
}

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

    /// Which kind of database it is.
    pub fn dialect(&self) -> Dialect {
        match &self.0 {
            AnyStore::Postgres(_) => Dialect::Postgres,
            AnyStore::MySql(_) => Dialect::MySql,
            AnyStore::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Brings the outbox up to date.
    pub async fn migrate(&self) -> Result<()> {
        self.0.migrate().await?;
        Ok(())
    }

    /// Migrates the outbox and makes the ledger.
    pub async fn prepare(&self) -> Result<()> {
        self.migrate().await?;
        on_each!(self, pool, _store => {
            sqlx::raw_sql("create table ledger (id char(36) primary key)").execute(pool).await?;
        });
        Ok(())
    }

    /// Commits messages with a line in the ledger for each, in one transaction; answers their ids.
    pub async fn commit(&self, messages: Vec<Message>) -> Result<Vec<Uuid>> {
        let ids: Vec<Uuid> = messages.iter().map(Message::id).collect();
        let lines: Vec<String> = ids.iter().map(|id| format!("('{id}')")).collect();
        self.transact(&format!("insert into ledger values {}", lines.join(", ")), messages, End::Commit).await?;
        Ok(ids)
    }

    /// A change of the application and its messages, in one transaction that ends so.
    pub async fn transact(&self, change: &str, messages: Vec<Message>, end: End) -> Result<()> {
        let change = AssertSqlSafe(change.to_owned());
        on_each!(self, pool, store => {
            let mut transaction = pool.begin().await?;
            sqlx::raw_sql(change).execute(&mut *transaction).await?;
            store.outbox().enqueue_many(&mut transaction, messages).await?;
            match end {
                End::Commit => transaction.commit().await?,
                End::Rollback => transaction.rollback().await?,
                End::Drop => drop(transaction),
            }
        });
        Ok(())
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

    /// Hands each line that a query answers to `take`, without keeping them.
    pub async fn each(&self, sql: &str, mut take: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_each!(self, pool, _store => {
            let mut lines = sqlx::query_scalar::<_, String>(sql).fetch(pool);
            while let Some(line) = lines.try_next().await? {
                take(&line)?;
            }
        });
        Ok(())
    }

    /// The number that a query answers.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        let sql = AssertSqlSafe(sql.to_owned());
        Ok(on_each!(self, pool, _store => sqlx::query_scalar(sql).fetch_one(pool).await?))
    }
}
