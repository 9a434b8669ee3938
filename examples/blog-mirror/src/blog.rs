//! The blog: authors and posts, written through units of work.

use std::sync::Arc;

use anyhow::Result;
use postrider::changelog::{ChangelogError, Column, Id, Schema, Table, TableBuilder, UnitOfWork};

use crate::home::Home;

/// A blog in a database.
#[derive(Clone)]
pub struct Blog {
    /// Where it is, with its changelog.
    pub home: Arc<dyn Home>,
    /// Its authors.
    pub authors: Table,
    /// Their posts.
    pub posts: Table,
}

impl Blog {
    /// Declares the tables.
    pub fn open(home: Arc<dyn Home>) -> Result<Self> {
        let schema = Schema::builder("blog")
            .table(TableBuilder::new("authors").column(Column::text("name")).column(Column::integer("written")))
            .table(
                TableBuilder::new("posts")
                    .column(Column::text("title"))
                    .column(Column::reference("author", "authors").physical("author_number"))
                    .column(Column::timestamp("createdAt").physical("created_at").default_now()),
            )
            .build()?;
        Ok(Self { home, authors: schema.table("authors")?, posts: schema.table("posts")? })
    }

    /// Commits so many units of work; answers how many had to be repeated.
    pub async fn write(self, units: usize) -> Result<usize> {
        let mut conflicts = 0;
        for _ in 0..units {
            // What the unit of work is to be depends on what is there, so it is read and recorded anew each time.
            while let Err(error) = self.home.commit(&self.next().await?).await {
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
        let (author, post) = (self.home.author().await?, self.home.post().await?);
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
                for post in self.home.posts_of(number).await? {
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
