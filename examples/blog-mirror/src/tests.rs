use anyhow::Result;

use super::{open, rows, run};

/// Several writers at once, a mirror that is stopped in between, and a second run that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn s1_13_s1_51_the_mirror_is_the_same_and_goes_on_where_it_was() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for round in 1..=2_usize {
        run(directory.path(), 8, 150).await?;
        let mirror = open(&directory.path().join("mirror.db")).await?;
        let entries = rows(&mirror, "select cast(entries as text) from cursor").await?;
        assert_eq!(entries, [(150 * round).to_string()], "each entry is applied once");
    }
    Ok(())
}

/// A cursor of another blog is refused, and nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_another_blog_is_not_written_to() -> Result<()> {
    let (one, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    run(one.path(), 2, 20).await?;
    let mirror = open(&one.path().join("mirror.db")).await?;
    let copy = other.path().join("mirror.db");
    sqlx::query("vacuum into ?1").bind(copy.to_str()).execute(&mirror).await?;
    let error = run(other.path(), 2, 20).await.expect_err("it is another blog");
    assert!(error.to_string().contains("the cursor is of changelog"), "{error}");
    Ok(())
}
