//! A database of its own for each test.
//!
//! Promise: the name is unique and the database is empty. It is never dropped; it goes with its server.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlPool};
use uuid::Uuid;

const MAX_CONNECTIONS: u32 = 10;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// An empty database on a MariaDB or MySQL server.
#[derive(Debug, Clone)]
pub struct MySqlDatabase {
    name: String,
    access: MySqlConnectOptions,
}

impl MySqlDatabase {
    pub(super) async fn create(access: &MySqlConnectOptions) -> Result<Self> {
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut admin = access.connect().await.context("cannot connect to the server")?;
        let sql = AssertSqlSafe(format!("create database {name}"));
        sqlx::raw_sql(sql).execute(&mut admin).await.context("cannot create a database for a test")?;
        admin.close().await?;
        Ok(Self { access: access.clone().database(&name), name })
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How clients get in.
    pub fn access(&self) -> &MySqlConnectOptions {
        &self.access
    }

    /// The address of the database for clients.
    pub fn url(&self) -> String {
        self.access.to_url_lossy().to_string()
    }

    /// The address of the database through a proxy that listens on `port` of 127.0.0.1.
    pub fn url_via(&self, port: u16) -> String {
        self.access.clone().host("127.0.0.1").port(port).to_url_lossy().to_string()
    }

    /// A pool of up to 10 connections.
    pub async fn pool(&self) -> Result<MySqlPool> {
        self.pool_with(|options| options).await
    }

    /// A pool with options that the caller adapts.
    pub async fn pool_with(&self, adapt: impl FnOnce(MySqlPoolOptions) -> MySqlPoolOptions) -> Result<MySqlPool> {
        let options = MySqlPoolOptions::new().max_connections(MAX_CONNECTIONS).acquire_timeout(ACQUIRE_TIMEOUT);
        let pool = adapt(options).connect_with(self.access.clone()).await;
        pool.with_context(|| format!("cannot connect to the database {}", self.name))
    }
}
