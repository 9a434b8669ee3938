//! The databases that are measured.

use std::path::PathBuf;

use anyhow::Result;
use postrider::{MySqlStore, Names, PostgresStore, SqliteStore, Store};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tempfile::TempDir;
use testkit::{MariaDb, Postgres};

/// A durable database that is measured, with an outbox in it.
#[allow(async_fn_in_trait)] // awaited on the bench's own task
pub trait Subject {
    const NAME: &'static str;
    type Pool: Clone;
    type Store: Store + Clone;

    /// A database of its own for one measurement.
    async fn fresh(&self) -> Result<Self::Pool>;

    /// A migrated outbox in it.
    async fn store(pool: &Self::Pool) -> Result<Self::Store>;

    /// Lets the database finish what earlier work left to do, so that it does not fall into the next measurement.
    async fn settle_down(pool: &Self::Pool) -> Result<()>;
}

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

    async fn settle_down(pool: &SqlitePool) -> Result<()> {
        sqlx::raw_sql("pragma wal_checkpoint(truncate)").execute(pool).await?;
        Ok(())
    }
}
