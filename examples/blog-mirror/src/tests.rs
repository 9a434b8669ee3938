//! What the changelog keeps, with the blog in SQLite and in PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use tempfile::TempDir;

use crate::blog::Blog;
use crate::home::Home;
use crate::mirror::Mirror;
use crate::{criteria, home, open};

async fn in_sqlite(directory: &TempDir) -> Result<Arc<dyn Home>> {
    home::sqlite(open(&directory.path().join("blog.db")).await?).await
}

async fn in_postgres() -> Result<Arc<dyn Home>> {
    home::postgres(testkit::Postgres::shared().await?.create_database().await?.pool().await?).await
}

async fn mirror(directory: &TempDir) -> Result<Mirror> {
    Mirror::open(open(&directory.path().join("mirror.db")).await?).await
}

async fn each(directory: &TempDir) -> Result<[Blog; 2]> {
    Ok([Blog::open(in_sqlite(directory).await?)?, Blog::open(in_postgres().await?)?])
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_1_s1_5_s1_50_off_by_default_nothing_is_written_and_the_list_is_empty() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for blog in each(&directory).await? {
        criteria::off_by_default(&blog).await?;
        let entries = blog.home.list(Default::default(), 10).await?.entries;
        assert!(entries.is_empty(), "{:?}", blog.home);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_14_s1_45_a_conflict_leaves_no_entry_and_no_gap() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for blog in each(&directory).await? {
        criteria::a_conflict_leaves_nothing(&blog).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_48_s1_49_a_list_begins_strictly_after_a_stamp() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for blog in each(&directory).await? {
        criteria::strictly_after(&blog).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_53_s1_54_an_internal_reference_is_a_placeholder_with_its_place_in_the_map() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for blog in each(&directory).await? {
        criteria::internal_ids_stay_inside(&blog).await?;
    }
    Ok(())
}

/// Several writers at once, a mirror that is stopped in the middle, and a second run that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn s1_13_s1_51_the_mirror_is_the_same_and_goes_on_where_it_was() -> Result<()> {
    for home in [None, Some(in_postgres().await?)] {
        let directory = tempfile::tempdir()?;
        let home = match home {
            Some(home) => home,
            None => in_sqlite(&directory).await?,
        };
        for round in 1..=2 {
            let (blog, mirror) = (Blog::open(home.clone())?, mirror(&directory).await?);
            criteria::mirrored(&blog, &mirror, 8, 100).await?;
            assert_eq!(mirror.entries().await?, 100 * round, "each entry is applied once");
        }
    }
    Ok(())
}

/// Two mirrors write to one database at the same time: each entry is applied by one of them.
#[tokio::test(flavor = "multi_thread")]
async fn s1_51_two_mirrors_at_once_apply_each_entry_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let blog = Blog::open(in_sqlite(&directory).await?)?;
    blog.clone().write(120).await?;
    let (one, other) = (mirror(&directory).await?, mirror(&directory).await?);
    tokio::try_join!(one.catch_up(&*blog.home), other.catch_up(&*blog.home))?;
    assert_eq!(one.entries().await?, 120);
    Ok(())
}

/// A cursor of another blog is refused, and nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_another_blog_is_not_written_to() -> Result<()> {
    let (one, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mirror = mirror(&one).await?;
    criteria::mirrored(&Blog::open(in_sqlite(&one).await?)?, &mirror, 2, 20).await?;
    let theirs = Blog::open(in_sqlite(&other).await?)?;
    theirs.clone().write(5).await?;
    let error = mirror.catch_up(&*theirs.home).await.expect_err("it is another blog");
    assert!(error.to_string().contains("the cursor is of changelog"), "{error}");
    assert_eq!(mirror.entries().await?, 20);
    Ok(())
}
