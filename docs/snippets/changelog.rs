//! The examples of `docs/concepts/changelog.md`.

use std::sync::Arc;

use postrider::changelog::{
    After, Change, Changelog, ChangelogError, Column, Consumer, ConsumerConfig, Entry, Id, Operation, Reader, Schema,
    TableBuilder, UnitOfWork,
};
use sqlx::{PgPool, Postgres};

fn declare() -> Result<Schema, ChangelogError> {
    let blog = Schema::builder("blog")
        .table(TableBuilder::new("users").column(Column::text("name")))
        .table(
            TableBuilder::new("posts")
                .physical("blog_posts")
                .column(Column::text("title"))
                .column(Column::reference("authorId", "users").physical("author_id"))
                .column(Column::timestamp("createdAt").physical("created_at").default_now()),
        )
        .build()?;
    Ok(blog)
}

async fn write(changelog: &Changelog<Postgres>, blog: &Schema) -> Result<(), ChangelogError> {
    let (users, posts) = (blog.table("users")?, blog.table("posts")?);
    let mut work = UnitOfWork::new();
    let author = work.create(&users, [("name", "Ada".into())])?;
    work.create(&posts, [("title", "Notes".into()), ("authorId", (&author).into())])?;
    work.update_checked(&posts, Id::external("first-post").with_version(3), [("title", "Another title".into())])?;
    let committed = changelog.commit(&work).await?;
    println!("{:?}", committed.versionstamp);
    Ok(())
}

async fn append(pool: &PgPool, changelog: &Changelog<Postgres>) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    let reservation = changelog.reserve(&mut transaction).await?;
    sqlx::query("update users set name = 'Ada' where id = 'u1'").execute(&mut *transaction).await?;
    let change = Change {
        namespace: "blog".into(),
        table: "users".into(),
        external_id: "u1".into(),
        operation: Operation::Update { set: [("name".to_owned(), "Ada".into())].into(), check_version: None },
    };
    changelog.append(&mut transaction, reservation, "rename-u1", vec![change]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn read(changelog: &Changelog<Postgres>) -> anyhow::Result<()> {
    let page = changelog.list(After::Beginning, 100).await?;
    for entry in &page.entries {
        for mutation in entry.resolved()?.mutations {
            println!("{} {} {}", mutation.versionstamp, mutation.table, mutation.external_id);
        }
    }
    let next = changelog.list(page.next.into(), 100).await?;
    println!("{}", next.entries.len());
    Ok(())
}

async fn index(_entry: &Entry) -> anyhow::Result<()> {
    Ok(())
}

async fn consume(changelog: &Changelog<Postgres>) -> anyhow::Result<()> {
    let consumer = Consumer::new(Arc::new(changelog.clone()), "search-index", ConsumerConfig::default())?;
    let mut held = consumer.wait().await?;
    loop {
        let page = held.next().await?;
        for entry in &page.entries {
            held.keep_while(index(entry)).await??;
        }
        held.advance(page.next).await?;
    }
}
