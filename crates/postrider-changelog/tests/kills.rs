//! Writers are killed with SIGKILL in the middle of their commits, and entries and rows stay together all the same.
//!
//! A writer is this program again, with the variables below: it commits units of work as fast as it can and says each one that
//! was. Several write at once; when one is killed the others go on, and a new one takes its place.

mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_changelog::{
    After, Changelog, ChangelogError, Database, Operation, Reader, TransactionVersion, UnitOfWork, Versionstamp,
};
use postrider_store::Names;
use scene::{Blog, OnMySql, OnPostgres, OnSqlite, Scene, blog};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use testkit::{Signal, Worker};

const URL: &str = "POSTRIDER_KILLS_URL";
const PATIENCE: Duration = Duration::from_secs(120);
/// Writers at once.
const CROWD: usize = 3;
/// Writers that are killed, of each database, times what `POSTRIDER_TEST_SCALE` says.
const KILLS: usize = 24;
/// What a writer says before the id and the stamp of what it has committed.
const SAID: &str = "committed ";

fn kills() -> usize {
    KILLS * std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// The writer; nothing in a run of the tests.
#[tokio::test]
async fn writer() {
    let Ok(url) = std::env::var(URL) else { return };
    match url.split(':').next() {
        Some("postgres") => write(Changelog::new(PgPool::connect(&url).await.expect("it answers"), names())).await,
        Some("mysql") => write(Changelog::new(MySqlPool::connect(&url).await.expect("it answers"), names())).await,
        _ => write(Changelog::new(SqlitePool::connect(&url).await.expect("it opens"), names())).await,
    }
}

fn names() -> Names {
    Names::default()
}

/// Units of work of two rows: one of its own, and one that all share.
async fn write<DB: Database>(changelog: Changelog<DB>) {
    let (changelog, blog) = (changelog.enabled(true), blog());
    loop {
        let work = unit(&blog);
        match changelog.commit(&work).await {
            Ok(committed) => {
                println!("{SAID}{} {}", work.id(), committed.versionstamp.expect("it has an entry"));
            }
            Err(ChangelogError::Conflict(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn unit(blog: &Blog) -> UnitOfWork {
    let mut work = UnitOfWork::new();
    let id = work.id().to_owned();
    work.create(&blog.users, [("id", id.as_str().into()), ("name", "somebody".into())]).expect("it is right");
    work.update(&blog.users, "shared", [("name", id.into())]).expect("it is right");
    work
}

fn spawn(url: &str) -> Worker {
    let program = std::env::current_exe().expect("this program");
    Worker::spawn(program, &["writer", "--exact", "--nocapture"], &[(URL, url)]).expect("it starts")
}

async fn survive<S: Scene>(scene: S, url: String) {
    let (changelog, blog) = (scene.changelog(), blog());
    let mut work = UnitOfWork::with_id("shared").expect("an id");
    work.create(&blog.users, [("id", "shared".into()), ("name", "0".into())]).expect("it is right");
    changelog.commit(&work).await.expect("it is committed");

    let mut said: BTreeMap<String, Versionstamp> = BTreeMap::new();
    let mut writers: Vec<Worker> = (0..CROWD).map(|_| spawn(&url)).collect();
    for kill in 0..kills() {
        let at = kill % CROWD;
        // It is at work, and at any point of it.
        writers[at].wait_for_line(|line| line.contains(SAID), PATIENCE).await.expect("it commits");
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..40_000))).await;
        end(&mut writers[at], &mut said).await;
        writers[at] = spawn(&url);
    }
    for mut writer in writers {
        writer.wait_for_line(|line| line.contains(SAID), PATIENCE).await.expect("who comes after a kill can write");
        end(&mut writer, &mut said).await;
    }
    // The server may still be at the last commit of one that is gone; this one comes after it.
    let last = changelog.commit(&unit(&blog)).await.expect("the last one can write").versionstamp;

    let entries = all(&changelog).await;
    let versions = entries.iter().map(|(stamp, ..)| stamp.transaction_version());
    let counted = (1..=entries.len() as u128).map(|number| TransactionVersion::new(number).expect("it fits"));
    assert!(versions.eq(counted), "a kill leaves no gap");
    assert_eq!(entries.last().map(|(stamp, ..)| *stamp), last);
    let stamps: BTreeMap<&str, Versionstamp> = entries.iter().map(|(stamp, id, _)| (id.as_str(), *stamp)).collect();
    for (id, stamp) in &said {
        assert_eq!(stamps.get(id.as_str()), Some(stamp), "what was said to be committed is there");
    }
    let told: BTreeSet<&str> = entries.iter().flat_map(|(_, _, created)| created).map(String::as_str).collect();
    let rows = scene.rows("select id from users").await;
    let rows: BTreeSet<&str> = rows.iter().map(|row| row[0].as_deref().expect("an id")).collect();
    assert_eq!(rows, told, "a row is there if and only if its entry is");
    let version = scene.number("select concat(_version, '') from users where id = 'shared'").await;
    assert_eq!(version as usize + 1, entries.len(), "each unit of work was done whole");
    println!("{} kills; {} entries, of which {} were said", kills() + CROWD, entries.len(), said.len());
    assert!(said.len() >= kills(), "they were at work");
}

async fn end(writer: &mut Worker, said: &mut BTreeMap<String, Versionstamp>) {
    writer.signal(Signal::SIGKILL).expect("it is killed");
    writer.wait(PATIENCE).await.expect("it ends");
    for line in writer.lines() {
        // The last line may be torn.
        let words = line.rsplit(SAID).next().filter(|_| line.contains(SAID)).and_then(|words| words.split_once(' '));
        if let Some((id, Ok(stamp))) = words.map(|(id, stamp)| (id, stamp.parse())) {
            said.insert(id.to_owned(), stamp);
        }
    }
}

/// Every entry: its stamp, its unit of work, and the rows that it says were created.
async fn all<DB: Database>(changelog: &Changelog<DB>) -> Vec<(Versionstamp, String, Vec<String>)> {
    let (mut all, mut after) = (Vec::new(), After::Beginning);
    loop {
        let page = changelog.list(after, 1_000).await.expect("it can be read");
        for entry in page.entries {
            let mutations = entry.payload().expect("it is whole").mutations;
            let created =
                mutations.into_iter().filter(|mutation| matches!(mutation.operation, Operation::Create { .. }));
            all.push((entry.versionstamp, entry.uow_id, created.map(|mutation| mutation.external_id).collect()));
        }
        after = page.next.into();
        if !page.more {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_45_on_postgres_entries_and_rows_stay_together_whenever_writers_are_killed() {
    let scene = OnPostgres::start().await;
    let url = scene.database.url();
    survive(scene, url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_45_on_mysql_entries_and_rows_stay_together_whenever_writers_are_killed() {
    let scene = OnMySql::start().await;
    let url = scene.database.url();
    survive(scene, url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_45_on_sqlite_entries_and_rows_stay_together_whenever_writers_are_killed() {
    let scene = OnSqlite::start().await;
    let url = format!("sqlite:{}", scene.directory.path().join("blog.db").display());
    survive(scene, url).await;
}
