//! The databases that are measured. Nothing that was there is touched: on a server a database of our own is made and dropped,
//! SQLite gets a directory of its own.

mod mysql;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use postrider::Store;
use postrider::any::{AnyStore, Connect};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bare::Loop;
use super::letter::Letters;
use super::scenario::Ack;
use crate::exit::Failure;

/// What databases that we make are called.
pub const PREFIX: &str = "postrider_bench_";
/// For 32 clients, a relay, and whoever holds a snapshot.
const CONNECTIONS: u32 = 48;

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Ours,
    Bare,
}

/// What a server is and how it is set, as far as it matters to figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// `postgres`, `mysql` or `sqlite`.
    pub database: String,
    pub version: String,
    pub settings: BTreeMap<String, String>,
}

/// What a server has used since it started; nothing where it cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    pub cpu: Option<Duration>,
    /// Bytes written to its log (WAL, redo).
    pub log: Option<u64>,
}

/// A server with a database that is ours.
#[async_trait]
pub trait Server: Send + Sync {
    async fn describe(&self) -> Result<Described>;

    /// An empty outbox and an empty bare table. The one before must be closed.
    async fn site(&self) -> Result<Box<dyn Site>>;

    async fn used(&self) -> Result<Used>;

    /// Drops the database; the error says what is left behind.
    async fn remove(&self) -> Result<()>;

    /// Databases that earlier runs left behind.
    fn stale(&self) -> &[String];
}

/// An empty outbox and an empty bare table in one database.
#[async_trait]
pub trait Site: Send + Sync {
    /// The outbox, as a relay sees it.
    fn store(&self) -> Arc<dyn Store>;

    /// The address, for relays in other processes.
    fn url(&self) -> &str;

    /// A client with a connection of its own.
    async fn client(&self, table: Table, letters: &Letters) -> Result<Box<dyn Client>>;

    /// Writes messages with these numbers into the bare table, in one statement.
    async fn fill_bare(&self, from: u32, count: u32, letters: &Letters) -> Result<()>;

    /// The bare loop on a table.
    async fn bare(&self, table: Table, batch: u32, ack: Ack) -> Result<Box<dyn Loop>>;

    /// How many messages of the outbox are not delivered.
    async fn open(&self) -> Result<i64>;

    /// Adds delivered rows to the outbox, with small payloads.
    async fn add_delivered(&self, rows: u32) -> Result<()>;

    /// A read snapshot that somebody else holds open until this is dropped.
    async fn snapshot(&self) -> Result<Box<dyn Send>>;

    /// Lets the database finish what earlier work left to do, so that it does not fall into the next measurement.
    async fn settle_down(&self) -> Result<()>;

    /// Closes the connections.
    async fn close(&self);
}

/// Somebody who writes.
#[async_trait]
pub trait Client: Send {
    /// Writes so many messages, numbered from the first, in one transaction.
    async fn write(&mut self, first: u32, count: u32) -> Result<()>;

    /// Writes messages of tenants in one transaction. Only the outbox has tenants.
    async fn write_messages(&mut self, messages: Vec<postrider::Message>) -> Result<()>;
}

/// Makes a database of our own on the server of an address.
pub async fn open(url: &str) -> Result<Box<dyn Server>, Failure> {
    match url.split_once(':') {
        Some(("sqlite", path)) => Ok(Box::new(sqlite::SqliteServer::new(path)?)),
        Some(("mysql" | "mariadb", _)) => Ok(Box::new(mysql::MySqlServer::create(url).await?)),
        _ => Ok(Box::new(postgres::PostgresServer::create(url).await?)),
    }
}

/// A name that nobody else has.
fn new_name() -> String {
    format!("{PREFIX}{}", &Uuid::new_v4().simple().to_string()[..12])
}

/// The address of another database on the same server.
fn with_database(url: &str, name: &str) -> Result<String> {
    let mut url = url::Url::parse(url)?;
    let kept: Vec<(String, String)> = url.query_pairs().into_owned().filter(|(key, _)| key != "dbname").collect();
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
    url.set_path(name);
    Ok(url.into())
}

/// Connections for a benchmark.
async fn connect(url: &str, connections: u32) -> Result<AnyStore, Failure> {
    let options =
        Connect { connections, create: true, application_name: "postrider bench".into(), ..Connect::default() };
    let store = AnyStore::connect(url, &options).await?;
    store.ping().await?;
    Ok(store)
}

/// The store that an address of this kind gives.
macro_rules! store_of {
    ($url:expr, $connections:expr, $kind:ident) => {
        match $crate::bench::server::connect($url, $connections).await {
            Ok(postrider::any::AnyStore::$kind(store)) => store,
            Ok(_) => anyhow::bail!("another database answered"),
            Err(failure) => anyhow::bail!("{failure}"),
        }
    };
}
use store_of;

/// Refuses what cannot be, so that no caller has to.
fn no_tenants() -> Result<()> {
    bail!("the bare table has no tenants")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_of_a_server_keeps_everything_else_of_the_address() {
        let url =
            with_database("postgres://me:p%40ss@host:5433/shop?sslmode=require&dbname=other", "x").expect("a URL");
        assert_eq!(url, "postgres://me:p%40ss@host:5433/x?sslmode=require");
        assert_eq!(with_database("mysql://me@host", "x").expect("a URL"), "mysql://me@host/x");
    }

    #[test]
    fn every_run_has_a_name_of_its_own() {
        assert_ne!(new_name(), new_name());
        assert!(new_name().starts_with(PREFIX) && new_name().len() < 64);
    }
}
