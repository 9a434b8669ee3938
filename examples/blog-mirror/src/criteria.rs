//! What the changelog has to keep, one function each: it does something, looks, and says how it was seen. Each goes on from
//! whatever is there, so that a blog can be looked at again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::changelog::{After, ChangelogError, Id, Input, UnitOfWork};
use tokio::task::JoinSet;

use crate::blog::Blog;
use crate::mirror::Mirror;

const PATIENCE: Duration = Duration::from_secs(20);

/// A unit of work that lets somebody in.
fn joins(blog: &Blog, name: &str) -> Result<UnitOfWork> {
    let mut work = UnitOfWork::new();
    work.create(&blog.authors, [("name", name.into()), ("written", 0.into())])?;
    Ok(work)
}

/// The application has not switched the changelog on: nothing is written to it, and the list has nothing new.
pub async fn off_by_default(blog: &Blog) -> Result<String> {
    let (plain, head) = (blog.home.as_by_default(), blog.home.head().await?);
    let committed = plain.commit(&joins(blog, "Nobody hears of this")?).await?;
    ensure!(committed.versionstamp.is_none(), "there is an entry at {:?}", committed.versionstamp);
    let author = committed.created.into_iter().next().context("no row was written")?;
    let listed = plain.list(head.into(), 10).await?.entries.len();
    ensure!(listed == 0 && plain.head().await? == head, "{listed} entries are listed");
    let found = blog.home.rows("select name from authors where written = 0").await?;
    ensure!(found.contains(&"Nobody hears of this".to_owned()), "the row is not there");
    // The mirror does not know of it, so it goes as it came.
    let mut work = UnitOfWork::new();
    work.delete(&blog.authors, author)?;
    plain.commit(&work).await?;
    Ok("two units of work wrote their rows and no entry, and the list could be asked and had nothing new".into())
}

/// Two write to one row at the same version; the second leaves no entry, and no gap.
pub async fn a_conflict_leaves_nothing(blog: &Blog) -> Result<String> {
    let before = blog.home.commit(&joins(blog, "Ada")?).await?;
    let ada = before.created[0].clone();
    let mut first = UnitOfWork::new();
    first.update_checked(&blog.authors, ada.clone(), [("written", 0.into())])?;
    let first = blog.home.commit(&first).await?.versionstamp.context("no entry")?;
    let mut second = joins(blog, "Eve")?;
    second.update_checked(&blog.authors, ada, [("written", 7.into())])?;
    let refused = blog.home.commit(&second).await;
    ensure!(matches!(refused, Err(ChangelogError::VersionConflict { .. })), "it was {refused:?}");
    ensure!(blog.home.list(first.into(), 10).await?.entries.is_empty(), "a conflict left an entry");
    let rows = blog.home.rows("select name || ' ' || written from authors").await?;
    ensure!(!rows.iter().any(|row| row.starts_with("Eve") || row == "Ada 7"), "a conflict left a row");
    let next = blog.home.commit(&joins(blog, "Joe")?).await?.versionstamp.context("no entry")?;
    let follows = first.transaction_version().checked_add(1) == Some(next.transaction_version());
    ensure!(follows, "{first} is followed by {next}");
    Ok(format!("the second of two was refused whole; {first} is followed by {next}, without a gap"))
}

/// A list begins strictly after a stamp, and is in order.
pub async fn strictly_after(blog: &Blog) -> Result<String> {
    let mut stamps = Vec::new();
    for name in ["Kim", "Lou", "Max"] {
        stamps.push(blog.home.commit(&joins(blog, name)?).await?.versionstamp.context("no entry")?);
    }
    let listed =
        |entries: Vec<postrider::changelog::Entry>| entries.iter().map(|entry| entry.versionstamp).collect::<Vec<_>>();
    let after_first = listed(blog.home.list(After::Versionstamp(stamps[0]), 10).await?.entries);
    ensure!(after_first == stamps[1..], "after {} come {after_first:?}", stamps[0]);
    let after_last = listed(blog.home.list(After::Versionstamp(stamps[2]), 10).await?.entries);
    ensure!(after_last.is_empty(), "after the last come {after_last:?}");
    let texts: Vec<String> = stamps.iter().map(ToString::to_string).collect();
    ensure!(texts.is_sorted() && texts.iter().all(|text| text.len() == 24), "the stamps are {texts:?}");
    Ok(format!("after {} come the two that follow it, after {} comes nothing", texts[0], texts[2]))
}

/// A reference by an internal id becomes a placeholder, and the map has the external id.
pub async fn internal_ids_stay_inside(blog: &Blog) -> Result<String> {
    let ada = blog.home.commit(&joins(blog, "Ursula")?).await?;
    let head = ada.versionstamp.context("no entry")?;
    let ada: &Id = ada.created.first().context("nobody was let in")?;
    let internal = ada.internal().context("the database did not say the internal id")?;
    let mut work = UnitOfWork::new();
    let title = "By a number that nobody is told".into();
    work.create(&blog.posts, [("title", title), ("author", Input::internal(internal))])?;
    blog.home.commit(&work).await?;
    let entry = blog.home.list(head.into(), 10).await?.entries.pop().context("no entry")?;
    let payload: serde_json::Value = serde_json::from_str(entry.payload.get())?;
    let told = &payload["json"]["mutations"][0]["values"]["author"];
    ensure!(*told == serde_json::json!({"__fragno_ref": "0.author"}), "the author is told as {told}");
    let references = entry.ref_map.clone().unwrap_or_default();
    let map: Vec<_> = references.iter().map(|(place, id)| (place.as_str(), id.as_str())).collect();
    ensure!(map == [("0.author", ada.as_str())], "the map is {map:?}");
    Ok(format!("the payload says {told}, the map {:?}", references))
}

/// Several write at once; a mirror is stopped in the middle of the log, and another goes on where it was. In the end both are
/// the same.
pub async fn mirrored(blog: &Blog, mirror: &Mirror, writers: usize, units: usize) -> Result<String> {
    let begun = mirror.catch_up(&*blog.home).await?;
    let first = tokio::spawn(mirror.clone().follow(blog.home.clone()));
    let half = units / 2;
    let mut conflicts = write(blog, writers, half).await?;
    let moving = async || mirror.entries().await.is_ok_and(|now| now > begun);
    testkit::within(PATIENCE, "that the mirror moves", moving).await?;
    first.abort();
    match first.await {
        Err(ended) if ended.is_cancelled() => {}
        ended => anyhow::bail!("the first mirror ended by itself: {ended:?}"),
    }
    let stopped = mirror.entries().await?;
    conflicts += write(blog, writers, units - half).await?;
    let entries = mirror.catch_up(&*blog.home).await?;
    ensure!(entries == begun + units as i64, "{units} units of work were {} entries", entries - begun);
    ensure!(begun < stopped && stopped < entries, "it was not stopped in the middle: {begun}, {stopped}, {entries}");
    let same = same(blog, mirror).await?;
    Ok(format!(
        "{writers} writers committed {units} units of work and repeated {conflicts}; the mirror was stopped at entry {stopped}, \
         another went on to {entries}: {same}"
    ))
}

/// Writers at the same time; answers how many units of work had to be repeated.
async fn write(blog: &Blog, writers: usize, units: usize) -> Result<usize> {
    let mut tasks = JoinSet::new();
    for number in 0..writers {
        let share = units / writers + usize::from(number < units % writers);
        tasks.spawn(blog.clone().write(share));
    }
    let mut conflicts = 0;
    while let Some(ended) = tasks.join_next().await {
        conflicts += ended??;
    }
    Ok(conflicts)
}

/// Compares the two, and says how many there are.
async fn same(blog: &Blog, mirror: &Mirror) -> Result<String> {
    let authors = "select id || ' ' || name || ' ' || written from authors";
    let posts = "select p.id || ' ' || p.title || ' ' || p._version || ' ' || a.id from posts as p join authors as a on a._internal_id = p.author_number";
    let mut told = Vec::new();
    for (what, ours, theirs) in [
        ("authors", authors, authors),
        ("posts", posts, "select id || ' ' || title || ' ' || edits || ' ' || author from posts"),
    ] {
        let (ours, mut theirs) = (blog.home.rows(ours).await?, crate::rows(mirror.pool(), theirs).await?);
        theirs.sort();
        ensure!(ours == theirs, "the {what} differ: {} in the blog, {} in the mirror", ours.len(), theirs.len());
        told.push(format!("{} {what} in both", ours.len()));
    }
    Ok(told.join(", "))
}
