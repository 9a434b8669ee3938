//! The database that a blog is in: SQLite or PostgreSQL. What differs is how columns are declared; the changelog is the same.

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use postrider::changelog::{Changelog, ChangelogError, Committed, Reader, UnitOfWork};
use postrider::{Names, PostgresStore, SqliteStore};
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool};

/// The blog's own tables. Every one has an external id, an internal id that references hold, and a version.
const TABLES: &str = "
create table if not exists authors (
  _internal_id {key}, id text not null unique, _version bigint not null, name text not null, written bigint not null);
create table if not exists posts (
  _internal_id {key}, id text not null unique, _version bigint not null, title text not null,
  author_number bigint not null references authors, created_at {time} not null);";

fn tables(key: &str, time: &str) -> String {
    TABLES.replace("{key}", key).replace("{time}", time)
}

/// An author: internal id, external id, version, posts written.
pub type Author = (i64, String, i64, i64);

/// A database with a changelog, and what a blog asks of it.
#[async_trait]
pub trait Home: Reader + Debug {
    /// Commits a unit of work.
    async fn commit(&self, work: &UnitOfWork) -> Result<Committed, ChangelogError>;
    /// The same database for an application that has not switched the changelog on.
    fn as_by_default(&self) -> Arc<dyn Home>;
    /// Any author.
    async fn author(&self) -> Result<Option<Author>>;
    /// Any post: external id and version.
    async fn post(&self) -> Result<Option<(String, i64)>>;
    /// The external ids of an author's posts, by the author's internal id.
    async fn posts_of(&self, author: i64) -> Result<Vec<String>>;
    /// Rows as text, in order.
    async fn rows(&self, sql: &'static str) -> Result<Vec<String>>;
}

/// The same for each database: only the type is another.
macro_rules! home {
    ($database:ty) => {
        #[async_trait]
        impl Home for Changelog<$database> {
            async fn commit(&self, work: &UnitOfWork) -> Result<Committed, ChangelogError> {
                self.commit(work).await
            }

            fn as_by_default(&self) -> Arc<dyn Home> {
                Arc::new(Self::new(self.pool().clone(), Names::default()))
            }

            async fn author(&self) -> Result<Option<Author>> {
                let any = "select _internal_id, id, _version, written from authors order by random() limit 1";
                Ok(sqlx::query_as(any).fetch_optional(self.pool()).await?)
            }

            async fn post(&self) -> Result<Option<(String, i64)>> {
                let any = "select id, _version from posts order by random() limit 1";
                Ok(sqlx::query_as(any).fetch_optional(self.pool()).await?)
            }

            async fn posts_of(&self, author: i64) -> Result<Vec<String>> {
                let posts = sqlx::query_scalar("select id from posts where author_number = $1").bind(author);
                Ok(posts.fetch_all(self.pool()).await?)
            }

            async fn rows(&self, sql: &'static str) -> Result<Vec<String>> {
                let mut rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(self.pool()).await?;
                rows.sort();
                Ok(rows)
            }
        }
    };
}

home!(Sqlite);
home!(Postgres);

/// A blog's home in SQLite.
pub async fn sqlite(pool: SqlitePool) -> Result<Arc<dyn Home>> {
    SqliteStore::new(pool.clone(), Names::default()).migrate().await?;
    let tables = tables("integer primary key autoincrement", "integer");
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
    Ok(Arc::new(Changelog::new(pool, Names::default()).enabled(true)))
}

/// A blog's home in PostgreSQL.
pub async fn postgres(pool: PgPool) -> Result<Arc<dyn Home>> {
    PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
    let tables = tables("bigint generated always as identity primary key", "timestamptz");
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
    Ok(Arc::new(Changelog::new(pool, Names::default()).enabled(true)))
}
