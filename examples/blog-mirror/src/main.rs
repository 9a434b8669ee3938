//! A blog and its mirror. Read `blog.rs` first, then `mirror.rs`, then `criteria.rs`.
//!
//! `cargo run -p blog-mirror` shows what the changelog keeps, with the blog in SQLite and in a private PostgreSQL, and ends with 0
//! only if all of it holds.

mod blog;
mod criteria;
mod home;
mod mirror;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, SqlitePool};
use testkit::show::Proof;

use crate::blog::Blog;
use crate::home::Home;
use crate::mirror::Mirror;

/// A blog whose units of work are mirrored to a second database in the order of their commits.
#[derive(Parser)]
struct Arguments {
    /// Writers at the same time.
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Units of work that they commit together.
    #[arg(long, default_value_t = 400)]
    units: usize,
    /// Where blog.db and mirror.db are kept, and no PostgreSQL is started; a directory that goes away unless given.
    #[arg(long)]
    directory: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { writers, units, directory } = Arguments::parse();
    let (writers, units) = (writers.max(1), units.max(2));
    let temporary = tempfile::tempdir()?;
    let here = directory.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(here)?;
    let mut proof = Proof::default();
    println!("The blog in SQLite, the mirror in SQLite");
    show(home::sqlite(open(&here.join("blog.db")).await?).await?, here, (writers, units), &mut proof).await?;
    if directory.is_none() {
        println!("\nThe blog in PostgreSQL (a private server), the mirror in SQLite");
        let server = testkit::Postgres::start().await?;
        let pool = server.create_database().await?.pool().await?;
        let there = tempfile::tempdir()?;
        show(home::postgres(pool).await?, there.path(), (writers, units), &mut proof).await?;
    }
    proof.end()
}

/// Shows all criteria with the blog in one database.
async fn show(home: Arc<dyn Home>, here: &Path, (writers, units): (usize, usize), proof: &mut Proof) -> Result<()> {
    let blog = Blog::open(home)?;
    let mirror = Mirror::open(open(&here.join("mirror.db")).await?).await?;
    proof.tell("the changelog is off until the application switches it on", criteria::off_by_default(&blog).await);
    proof.tell("a conflict leaves no entry and no gap", criteria::a_conflict_leaves_nothing(&blog).await);
    proof.tell("a list begins strictly after a stamp", criteria::strictly_after(&blog).await);
    proof.tell("an internal id becomes a placeholder", criteria::internal_ids_stay_inside(&blog).await);
    proof.tell("the mirror is the same", criteria::mirrored(&blog, &mirror, writers, units).await);
    Ok(())
}

async fn open(file: &Path) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .foreign_keys(true)
        .busy_timeout(std::time::Duration::from_secs(30));
    Ok(SqlitePoolOptions::new().max_connections(20).connect_with(options).await?)
}

async fn rows(pool: &SqlitePool, sql: &'static str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(pool).await?)
}
