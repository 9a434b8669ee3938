//! A second server that follows a first one, asynchronously: it lags behind, can be cut off, and takes over.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, PgConnection};

use super::Postgres;
use super::server::Server;
use crate::wait::within;

const SOON: Duration = Duration::from_secs(60);

impl Postgres {
    /// Starts a streaming standby of this server, which can be read from.
    pub async fn standby(&self) -> Result<Self> {
        let (bin_dir, primary) = (self.bin_dir().to_path_buf(), self.port());
        tokio::task::spawn_blocking(move || {
            let started = Server::start_standby(&bin_dir, primary).context("cannot start a standby")?;
            Ok(Self::running(bin_dir, started))
        })
        .await?
    }

    /// Waits until this standby has replayed all that its primary has written so far.
    pub async fn caught_up_with(&self, primary: &Self) -> Result<()> {
        let position: String = primary.ask("select pg_current_wal_insert_lsn()::text").await?;
        let reached = format!("select (pg_last_wal_replay_lsn() >= '{position}')::text");
        let has_reached = || async { self.ask(&reached).await.is_ok_and(|answer| answer == "true") };
        within(SOON, "the standby to catch up", has_reached).await
    }

    /// Lets this standby receive nothing more. What it has is all that it will ever have.
    pub async fn stop_receiving(&self) -> Result<()> {
        let mut admin = PgConnection::connect(&self.url("postgres")).await?;
        sqlx::query("alter system set primary_conninfo = ''").execute(&mut admin).await?;
        sqlx::query("select pg_reload_conf()").execute(&mut admin).await?;
        admin.close().await?;
        let receivers = "select count(*)::text from pg_stat_wal_receiver";
        let is_cut = || async { self.ask(receivers).await.is_ok_and(|answer| answer == "0") };
        within(SOON, "the end of streaming", is_cut).await
    }

    /// Makes this standby a primary.
    pub async fn promote(&self) -> Result<()> {
        ensure!(self.ask("select pg_promote(true, 60)::text").await? == "true", "the standby was not promoted");
        Ok(())
    }

    /// What a query answers, as text.
    async fn ask(&self, sql: &str) -> Result<String> {
        let mut admin = PgConnection::connect(&self.url("postgres")).await?;
        let answer = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut admin).await?;
        admin.close().await?;
        Ok(answer)
    }
}
