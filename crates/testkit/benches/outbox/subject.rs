//! The databases that are measured.

use std::path::PathBuf;

use anyhow::Result;
use postrider::{Message, MySqlStore, Names, PostgresStore, SqliteStore, Store};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tempfile::TempDir;
use testkit::{MariaDb, Postgres};

use crate::{bare, payload};

/// A durable database that is measured: Postrider on it, and the same work in bare SQL.
#[allow(async_fn_in_trait)] // awaited on the bench's own task
pub trait Subject {
    const NAME: &'static str;
    type Pool: Clone;
    type Store: Store + Clone;

    /// A database of its own for one measurement.
    async fn fresh(&self) -> Result<Self::Pool>;

    /// A migrated outbox in it.
    async fn store(pool: &Self::Pool) -> Result<Self::Store>;

    /// Enqueues so many messages in one transaction.
    async fn enqueue(pool: &Self::Pool, store: &Self::Store, messages: Vec<Message>) -> Result<()>;

    /// How many messages are not delivered.
    async fn left(pool: &Self::Pool) -> Result<i64>;

    /// Makes the bare table and fills it.
    async fn fill_bare(pool: &Self::Pool, rows: usize, payload: &str) -> Result<()>;

    /// Drains a table with the bare loop; answers how many rows.
    async fn drain_bare(pool: &Self::Pool, table: &str, delete: bool) -> Result<usize>;

    /// Lets the database finish what earlier work left to do, so that it does not fall into the next measurement.
    async fn settle_down(pool: &Self::Pool) -> Result<()>;

    /// Fills an outbox.
    async fn fill(pool: &Self::Pool, store: &Self::Store, messages: usize) -> Result<()> {
        let payload = payload();
        for at in (0..messages).step_by(bare::BATCH) {
            let size = bare::BATCH.min(messages - at);
            let batch = (0..size).map(|_| Message::json("bench", "drain", &payload)).collect();
            Self::enqueue(pool, store, batch).await?;
        }
        Ok(())
    }
}

const LEFT: &str = "select count(*) from outbox_messages where status <> 'delivered'";

impl Subject for Postgres {
    const NAME: &'static str = "PostgreSQL";
    type Pool = PgPool;
    type Store = PostgresStore;

    async fn fresh(&self) -> Result<PgPool> {
        self.create_database().await?.pool().await
    }

    async fn store(pool: &PgPool) -> Result<PostgresStore> {
        let store = PostgresStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        Ok(store)
    }

    async fn enqueue(pool: &PgPool, store: &PostgresStore, messages: Vec<Message>) -> Result<()> {
        let mut transaction = pool.begin().await?;
        store.outbox().enqueue_many(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }

    async fn left(pool: &PgPool) -> Result<i64> {
        Ok(sqlx::query_scalar(LEFT).fetch_one(pool).await?)
    }

    async fn fill_bare(pool: &PgPool, rows: usize, payload: &str) -> Result<()> {
        bare::postgres::create(pool).await?;
        bare::postgres::fill(pool, rows, payload).await
    }

    async fn drain_bare(pool: &PgPool, table: &str, delete: bool) -> Result<usize> {
        bare::postgres::drain(pool, table, delete).await
    }

    async fn settle_down(pool: &PgPool) -> Result<()> {
        sqlx::raw_sql("vacuum analyze").execute(pool).await?;
        sqlx::raw_sql("checkpoint").execute(pool).await?;
        Ok(())
    }
}

impl Subject for MariaDb {
    const NAME: &'static str = "MariaDB";
    type Pool = MySqlPool;
    type Store = MySqlStore;

    async fn fresh(&self) -> Result<MySqlPool> {
        self.create_database().await?.pool().await
    }

    async fn store(pool: &MySqlPool) -> Result<MySqlStore> {
        let store = MySqlStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        Ok(store)
    }

    async fn enqueue(pool: &MySqlPool, store: &MySqlStore, messages: Vec<Message>) -> Result<()> {
        let mut transaction = pool.begin().await?;
        store.outbox().enqueue_many(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }

    async fn left(pool: &MySqlPool) -> Result<i64> {
        Ok(sqlx::query_scalar(LEFT).fetch_one(pool).await?)
    }

    async fn fill_bare(pool: &MySqlPool, rows: usize, payload: &str) -> Result<()> {
        bare::mysql::create(pool).await?;
        bare::mysql::fill(pool, rows, payload).await
    }

    async fn drain_bare(pool: &MySqlPool, table: &str, delete: bool) -> Result<usize> {
        bare::mysql::drain(pool, table, delete).await
    }

    async fn settle_down(_: &MySqlPool) -> Result<()> {
        // There is no checkpoint to ask for; the writers get a moment.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Ok(())
    }
}

/// A directory for database files.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn next(&self) -> PathBuf {
        self.0.path().join(format!("{}.db", uuid::Uuid::now_v7()))
    }
}

impl Subject for Files {
    const NAME: &'static str = "SQLite";
    type Pool = SqlitePool;
    type Store = SqliteStore;

    async fn fresh(&self) -> Result<SqlitePool> {
        // The store knows which settings are safe, so the bare loop gets a pool that it made.
        Ok(SqliteStore::open(self.next()).await?.pool().clone())
    }

    async fn store(pool: &SqlitePool) -> Result<SqliteStore> {
        let store = SqliteStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        Ok(store)
    }

    async fn enqueue(pool: &SqlitePool, store: &SqliteStore, messages: Vec<Message>) -> Result<()> {
        let mut transaction = pool.begin_with("begin immediate").await?;
        store.outbox().enqueue_many(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }

    async fn left(pool: &SqlitePool) -> Result<i64> {
        Ok(sqlx::query_scalar(LEFT).fetch_one(pool).await?)
    }

    async fn fill_bare(pool: &SqlitePool, rows: usize, payload: &str) -> Result<()> {
        bare::sqlite::create(pool).await?;
        bare::sqlite::fill(pool, rows, payload).await
    }

    async fn drain_bare(pool: &SqlitePool, table: &str, delete: bool) -> Result<usize> {
        bare::sqlite::drain(pool, table, delete).await
    }

    async fn settle_down(pool: &SqlitePool) -> Result<()> {
        sqlx::raw_sql("pragma wal_checkpoint(truncate)").execute(pool).await?;
        Ok(())
    }
}
