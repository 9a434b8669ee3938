//! A migrated outbox on any database with a ledger beside it, and a record of arrivals on PostgreSQL.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::PgPool;
use tempfile::TempDir;
use testkit::checker::arrivals;
use testkit::{Database, MariaDb, Postgres, Source, within};
use uuid::Uuid;

use super::scene::message;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Postgres,
    MariaDb,
    Sqlite,
}

pub struct Everywhere {
    pub url: String,
    pub record: Database,
    pub source: Source,
    arrived: PgPool,
    _directory: Option<TempDir>,
}

/// What a run showed.
#[derive(Debug)]
pub struct Found {
    pub messages: usize,
    pub duplicates: usize,
}

impl Everywhere {
    pub async fn new(on: On) -> Result<Self> {
        match on {
            On::Postgres => Self::at(Postgres::shared().await?.create_database().await?.url(), None).await,
            On::MariaDb => Self::at(MariaDb::shared().await?.create_database().await?.url(), None).await,
            On::Sqlite => {
                let directory = tempfile::tempdir()?;
                let url = format!("sqlite:{}", directory.path().join("outbox.db").display());
                Self::at(url, Some(directory)).await
            }
        }
    }

    /// In the database at this address.
    pub async fn at(url: String, directory: Option<TempDir>) -> Result<Self> {
        let source = Source::connect(&url, "test", 4).await?;
        source.prepare().await?;
        let record = Postgres::shared().await?.create_database().await?;
        let arrived = record.pool_with(|options| options.max_connections(1)).await?;
        arrivals::create(&mut *arrived.acquire().await?).await?;
        Ok(Self { url, record, source, arrived, _directory: directory })
    }

    /// Commits so many messages in one transaction.
    pub async fn commit(&self, count: usize) -> Result<Vec<Uuid>> {
        self.source.commit((0..count).map(|number| message("everywhere", number)).collect()).await
    }

    pub async fn arrivals(&self) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar("select id from arrivals").fetch_all(&self.arrived).await?)
    }

    /// Waits until every message is delivered or dead.
    pub async fn finished(&self, limit: Duration) -> Result<()> {
        let open = "select count(*) from outbox_messages where status not in ('delivered', 'dead')";
        within(limit, "an end of all messages", || async { self.source.count(open).await.is_ok_and(|open| open == 0) })
            .await
    }

    /// Every message of the ledger arrived (I1, I2), nothing else did (I3), and not too often (I4). Rows may have been
    /// purged; those that are there belong to the ledger and are delivered.
    pub async fn check(&self, most_duplicates: usize) -> Result<Found> {
        let ledger: HashSet<Uuid> =
            self.source.ids("select cast(id as char(36)) from ledger").await?.into_iter().collect();
        let rows =
            self.source.ids("select cast(id as char(36)) from outbox_messages where status = 'delivered'").await?;
        let others = self.source.count("select count(*) from outbox_messages where status <> 'delivered'").await?;
        let arrivals = self.arrivals().await?;
        let arrived: HashSet<Uuid> = arrivals.iter().copied().collect();
        ensure!(others == 0, "{others} rows are not delivered");
        ensure!(rows.iter().all(|id| ledger.contains(id)), "I1: a row without its line in the ledger");
        let lost = ledger.difference(&arrived).count();
        ensure!(lost == 0, "I2: {lost} messages are lost");
        let invented = arrived.difference(&ledger).count();
        ensure!(invented == 0, "I3: {invented} messages arrived that were never committed");
        let duplicates = arrivals.len() - arrived.len();
        ensure!(duplicates <= most_duplicates, "I4: {duplicates} duplicates, at most {most_duplicates} may be");
        Ok(Found { messages: ledger.len(), duplicates })
    }
}
