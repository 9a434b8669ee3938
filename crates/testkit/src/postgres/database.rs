//! A database of its own for each test.
//!
//! Promise: the name is unique and the database is empty. It is never dropped; it goes with its server.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use uuid::Uuid;

const MAX_CONNECTIONS: u32 = 10;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: usize = 50;
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// SQLSTATE object_in_use: "source database is being accessed by other users".
const OBJECT_IN_USE: &str = "55006";

/// An empty database on a private server.
#[derive(Debug, Clone)]
pub struct Database {
    name: String,
    port: u16,
}

impl Database {
    /// `template0` is chosen because nobody can be connected to it. No strategy is given: the default of PostgreSQL 15
    /// (copy through the log) needs no checkpoints, so it is the faster one when many tests create databases at once
    /// (36 ms against 50 ms), and older servers do not know the clause.
    pub(super) async fn create(port: u16) -> Result<Self> {
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut admin = PgConnection::connect(&url(port, "postgres")).await?;
        for attempt in 1.. {
            let sql = AssertSqlSafe(format!("create database {name} template template0"));
            match sqlx::raw_sql(sql).execute(&mut admin).await {
                Ok(_) => break,
                Err(error) if attempt < ATTEMPTS && is_in_use(&error) => tokio::time::sleep(RETRY_AFTER).await,
                Err(error) => return Err(error).context("cannot create a database for a test"),
            }
        }
        admin.close().await?;
        Ok(Self { name, port })
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the database for clients.
    pub fn url(&self) -> String {
        url(self.port, &self.name)
    }

    /// The address of the database through a proxy that listens on `port` of 127.0.0.1.
    pub fn url_via(&self, port: u16) -> String {
        url(port, &self.name)
    }

    /// A pool of up to 10 connections.
    pub async fn pool(&self) -> Result<PgPool> {
        self.pool_with(|options| options).await
    }

    /// A pool with options that the caller adapts.
    pub async fn pool_with(&self, adapt: impl FnOnce(PgPoolOptions) -> PgPoolOptions) -> Result<PgPool> {
        let options = PgPoolOptions::new().max_connections(MAX_CONNECTIONS).acquire_timeout(ACQUIRE_TIMEOUT);
        adapt(options).connect(&self.url()).await.with_context(|| format!("cannot connect to {}", self.url()))
    }
}

/// The address of a database on loopback, for the superuser.
pub(crate) fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

fn is_in_use(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(OBJECT_IN_USE))
}
