//! The blog: authors and posts, written through units of work.

use anyhow::Result;
use postrider::changelog::{Changelog, ChangelogError, Column, Id, Schema, Table, TableBuilder, UnitOfWork};
use postrider::{Names, SqliteStore};
use sqlx::{Sqlite, SqlitePool};

/// The application's own tables. Every one has an external id, an internal id that references hold, and a version.
const TABLES: &str = "
create table if not exists authors (
  _internal_id integer primary key autoincrement, id text not null unique, _version integer not null, name text not null,
  written integer not null);
create table if not exists posts (
  _internal_id integer primary key autoincrement, id text not null unique, _version integer not null, title text not null,
  author_number integer not null references authors, created_at integer not null);";

/// A blog in a database.
#[derive(Clone)]
pub struct Blog {
    changelog: Changelog<Sqlite>,
    authors: Table,
    posts: Table,
}

impl Blog {
    /// Makes the tables and declares them.
    pub async fn open(pool: SqlitePool) -> Result<Self> {
        SqliteStore::new(pool.clone(), Names::default()).migrate().await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        let schema = Schema::builder("blog")
            .table(TableBuilder::new("authors").column(Column::text("name")).column(Column::integer("written")))
            .table(
                TableBuilder::new("posts")
                    .column(Column::text("title"))
                    .column(Column::reference("author", "authors").physical("author_number"))
                    .column(Column::timestamp("createdAt").physical("created_at").default_now()),
            )
            .build()?;
        Ok(Self {
            changelog: Changelog::new(pool, Names::default()).enabled(true),
            authors: schema.table("authors")?,
            posts: schema.table("posts")?,
        })
    }

    /// Its changelog.
    pub fn changelog(&self) -> Changelog<Sqlite> {
        self.changelog.clone()
    }

    /// Its database.
    pub fn pool(&self) -> &SqlitePool {
        self.changelog.pool()
    }

    /// Commits so many units of work; answers how many had to be repeated.
    pub async fn write(self, units: usize) -> Result<usize> {
        let mut conflicts = 0;
        for _ in 0..units {
            // What the unit of work is to be depends on what is there, so it is read and recorded anew each time.
            while let Err(error) = self.changelog.commit(&self.next().await?).await {
                match error {
                    ChangelogError::VersionConflict { .. }
                    | ChangelogError::Missing { .. }
                    | ChangelogError::Unresolved { .. }
                    | ChangelogError::Conflict(_) => conflicts += 1,
                    error => return Err(error.into()),
                }
            }
        }
        Ok(conflicts)
    }

    /// Something that happens in a blog. Who writes a post counts it at its author, if nobody else has meanwhile; so an author
    /// cannot leave with a version from before the last post.
    async fn next(&self) -> Result<UnitOfWork> {
        let mut work = UnitOfWork::new();
        let author: Option<(i64, String, i64, i64)> =
            sqlx::query_as("select _internal_id, id, _version, written from authors order by random() limit 1")
                .fetch_optional(self.pool())
                .await?;
        let post: Option<(String, i64)> = sqlx::query_as("select id, _version from posts order by random() limit 1")
            .fetch_optional(self.pool())
            .await?;
        match (fastrand::u8(..100), author, post) {
            // Somebody edits a post, if nobody else has meanwhile.
            (0..35, _, Some((id, version))) => {
                let title = format!("Title {}", fastrand::u16(..));
                let post = Id::external(id).with_version(version);
                work.update_checked(&self.posts, post, [("title", title.as_str().into())])?;
            }
            // A post is taken away.
            (35..45, _, Some((id, version))) => {
                work.delete_checked(&self.posts, Id::external(id).with_version(version))?;
            }
            // An author leaves, and the posts with them: each is a mutation of its own.
            (45..50, Some((number, author, version, _)), _) => {
                let posts: Vec<String> = sqlx::query_scalar("select id from posts where author_number = ?1")
                    .bind(number)
                    .fetch_all(self.pool())
                    .await?;
                for post in posts {
                    work.delete(&self.posts, post)?;
                }
                work.delete_checked(&self.authors, Id::external(author).with_version(version))?;
            }
            // Somebody who is known writes a post.
            (50..80, Some((_, author, version, written)), _) => {
                let author = Id::external(author).with_version(version);
                work.create(&self.posts, [("title", "First thoughts".into()), ("author", (&author).into())])?;
                work.update_checked(&self.authors, author, [("written", (written + 1).into())])?;
            }
            // Somebody joins and writes a post at once: both or neither.
            _ => {
                let name = format!("Author {}", fastrand::u16(..));
                let author = work.create(&self.authors, [("name", name.as_str().into()), ("written", 1.into())])?;
                work.create(&self.posts, [("title", "Hello".into()), ("author", (&author).into())])?;
            }
        }
        Ok(work)
    }
}
