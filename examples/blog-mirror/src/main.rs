//! A blog and its mirror. Read `blog.rs` first, then `mirror.rs`.

mod blog;
mod mirror;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Parser;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, SqlitePool};
use tokio::task::JoinSet;

use crate::blog::Blog;
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
    /// Where blog.db and mirror.db are kept; a directory that goes away unless given.
    #[arg(long)]
    directory: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let temporary = tempfile::tempdir()?;
    let directory = arguments.directory.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(directory)?;
    let told = run(directory, arguments.writers.max(1), arguments.units).await?;
    println!("{told}");
    Ok(())
}

/// Writes, mirrors and compares; says what was done.
async fn run(directory: &Path, writers: usize, units: usize) -> Result<String> {
    let blog = Blog::open(open(&directory.join("blog.db")).await?).await?;
    let mirror = Mirror::open(open(&directory.join("mirror.db")).await?).await?;
    // The mirror is stopped in the middle of its work, and another one goes on where it was.
    let first = tokio::spawn(mirror.clone().follow(blog.changelog()));
    let mut tasks = JoinSet::new();
    for number in 0..writers {
        let share = units / writers + usize::from(number < units % writers);
        tasks.spawn(blog.clone().write(share));
    }
    let mut conflicts = 0;
    while let Some(ended) = tasks.join_next().await {
        conflicts += ended??;
        first.abort();
    }
    let entries = mirror.catch_up(&blog.changelog()).await?;
    let authors = "select id || ' ' || name || ' ' || written from authors order by id";
    for (what, ours, theirs) in [
        ("authors", authors, authors),
        (
            "posts",
            "select p.id || ' ' || p.title || ' ' || p._version || ' ' || a.id from posts as p join authors as a on a._internal_id = p.author_number order by p.id",
            "select id || ' ' || title || ' ' || edits || ' ' || author from posts order by id",
        ),
    ] {
        let (ours, theirs) = (rows(blog.pool(), ours).await?, rows(mirror.pool(), theirs).await?);
        ensure!(ours == theirs, "the {what} differ: {} in the blog, {} in the mirror", ours.len(), theirs.len());
        println!("{what}: {} in both", ours.len());
    }
    Ok(format!(
        "{writers} writers committed {units} units of work and repeated {conflicts}; the mirror is at entry {entries}, and the same"
    ))
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
