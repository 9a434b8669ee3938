//! The order of versionstamps is the order of commits, under real concurrency.
//!
//! Thirty-two writers on connections of their own commit ten thousand units of work, with pauses at random between their
//! statements and before their commits, and now and then a rollback. Half of them hand over a unit of work, the others reserve
//! and append in transactions of their own. What they write leaves an effect that says in which order they were committed: a row
//! that many of them update counts its versions. Somebody follows meanwhile.

mod scene;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use postrider_changelog::{
    After, Change, Changelog, ChangelogError, FollowConfig, Operation, Reader, TransactionVersion, UnitOfWork,
    Versionstamp, follow,
};
use scene::{Blog, OnMySql, OnPostgres, OnSqlite, Scene, blog};
use sqlx::Transaction;
use tokio::task::JoinSet;

const WRITERS: usize = 32;
const UNITS: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn s1_13_stamps_are_in_the_order_of_commits_on_postgres() {
    order::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_13_stamps_are_in_the_order_of_commits_on_mysql() {
    order::<OnMySql>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_13_stamps_are_in_the_order_of_commits_on_sqlite() {
    order::<OnSqlite>().await;
}

async fn order<S: Stepping>() {
    let (scene, blog) = (Arc::new(S::start().await), Arc::new(blog()));
    scene.run("create table steps (uow_id varchar(64) not null, step bigint not null)").await.expect("it is made");
    let changelog = scene.changelog();
    let mut work = UnitOfWork::new();
    work.create(&blog.users, [("id", "shared".into()), ("name", "0".into())]).expect("it is right");
    changelog.commit(&work).await.expect("it is committed");

    let reader = tokio::spawn(read(changelog.clone(), UNITS + 1));
    let left = Arc::new(AtomicUsize::new(UNITS));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(write(scene.clone(), blog.clone(), left.clone(), number));
    }
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer works");
    }
    let followed = tokio::time::timeout(PATIENCE, reader).await.expect("it comes to the end").expect("it can read");

    let listed = list(&changelog).await;
    assert_eq!(listed.len(), UNITS + 1, "one entry for each");
    let versions = listed.iter().map(|(stamp, _)| stamp.transaction_version().get());
    assert!(versions.eq(1..=UNITS as u128 + 1), "there is no gap, whatever was rolled back");
    assert_eq!(followed, listed, "who follows misses nothing and sees nothing twice");

    let steps = scene.rows("select uow_id, concat(step, '') from steps").await;
    let steps: HashMap<String, u64> = steps
        .into_iter()
        .map(|mut row| {
            (row[0].take().expect("an id"), row[1].take().and_then(|step| step.parse().ok()).expect("a number"))
        })
        .collect();
    let by_stamp: Vec<u64> = listed.iter().filter_map(|(_, id)| steps.get(id).copied()).collect();
    assert!(by_stamp.len() > UNITS / 2 && by_stamp.len() == steps.len(), "{} steps", by_stamp.len());
    assert!(by_stamp.windows(2).all(|pair| pair[0] < pair[1]), "the order of stamps is that of the commits");
}

/// Commits units of work until there are enough.
async fn write<S: Stepping>(scene: Arc<S>, blog: Arc<Blog>, left: Arc<AtomicUsize>, number: usize) {
    let changelog = scene.changelog();
    let own = number.is_multiple_of(2);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        loop {
            let done = match own {
                true => unit(&*scene, &changelog, &blog).await,
                false => entry(&*scene, &changelog).await,
            };
            match done {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
        }
    }
}

/// A unit of work in a transaction that is held for a while; false if it was rolled back.
async fn unit<S: Stepping>(scene: &S, changelog: &Changelog<S::Db>, blog: &Blog) -> Result<bool, ChangelogError> {
    let mut work = UnitOfWork::new();
    let shared = fastrand::u8(..) < 220;
    if shared {
        work.update(&blog.users, "shared", [("name", work.id().to_owned().into())])?;
    }
    if !shared || fastrand::bool() {
        work.create(&blog.users, [("name", "somebody".into())])?;
    }
    let mut transaction = scene.begin().await;
    changelog.apply(&mut transaction, &work).await?;
    pause().await;
    if shared {
        S::step(&mut transaction, work.id()).await;
    }
    end(transaction).await
}

/// An entry of a transaction's own, with pauses between its statements; false if it was rolled back.
async fn entry<S: Stepping>(scene: &S, changelog: &Changelog<S::Db>) -> Result<bool, ChangelogError> {
    let id = uuid::Uuid::now_v7().to_string();
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await?;
    pause().await;
    S::touch(&mut transaction).await;
    pause().await;
    S::step(&mut transaction, &id).await;
    let change = Change {
        namespace: "blog".into(),
        table: "users".into(),
        external_id: "shared".into(),
        operation: Operation::Update { set: [("name".to_owned(), "x".into())].into(), check_version: None },
    };
    changelog.append(&mut transaction, reservation, &id, vec![change]).await?;
    end(transaction).await
}

async fn end<DB: sqlx::Database>(transaction: Transaction<'static, DB>) -> Result<bool, ChangelogError> {
    pause().await;
    if fastrand::u8(..) < 12 {
        transaction.rollback().await.expect("it is rolled back");
        return Ok(false);
    }
    transaction.commit().await.expect("it is committed");
    Ok(true)
}

/// Now and then a moment, so that many wait.
async fn pause() {
    match fastrand::u8(..) {
        0..10 => tokio::time::sleep(Duration::from_micros(fastrand::u64(..3_000))).await,
        10..40 => tokio::task::yield_now().await,
        _ => {}
    }
}

type Seen = Vec<(Versionstamp, String)>;

async fn read<DB: postrider_changelog::Database>(changelog: Changelog<DB>, count: usize) -> Seen {
    let config = FollowConfig { poll_interval: Duration::from_millis(1), ..Default::default() };
    let entries = follow(Arc::new(changelog), After::Beginning, config).take(count);
    entries
        .map(|next| next.map(|(entry, _)| (entry.versionstamp, entry.uow_id)).expect("it can be read"))
        .collect()
        .await
}

async fn list<DB: postrider_changelog::Database>(changelog: &Changelog<DB>) -> Seen {
    let mut seen = Seen::new();
    let mut after = After::Beginning;
    loop {
        let page = changelog.list(after, 1_000).await.expect("it can be read");
        seen.extend(page.entries.into_iter().map(|entry| (entry.versionstamp, entry.uow_id)));
        after = page.next.into();
        if !page.more {
            assert_eq!(
                seen.last().map(|(stamp, _)| stamp.transaction_version()),
                TransactionVersion::new(seen.len() as u128)
            );
            return seen;
        }
    }
}

/// What the writers do besides, in the SQL of their database.
trait Stepping: Scene {
    /// A transaction whose first statement is to be a reservation.
    fn begin(&self) -> impl Future<Output = Transaction<'static, Self::Db>> + Send;

    /// Updates the row that many update.
    fn touch(transaction: &mut Transaction<'static, Self::Db>) -> impl Future<Output = ()> + Send;

    /// Notes how often that row was updated when this transaction had it.
    fn step(transaction: &mut Transaction<'static, Self::Db>, id: &str) -> impl Future<Output = ()> + Send;
}

const TOUCH: &str = "update users set _version = _version + 1 where id = 'shared'";

macro_rules! stepping {
    ($scene:ty, $begin:expr, $placeholder:literal) => {
        impl Stepping for $scene {
            async fn begin(&self) -> Transaction<'static, Self::Db> {
                self.pool().begin_with($begin).await.expect("it begins")
            }

            async fn touch(transaction: &mut Transaction<'static, Self::Db>) {
                sqlx::query(TOUCH).execute(&mut **transaction).await.expect("it is updated");
            }

            async fn step(transaction: &mut Transaction<'static, Self::Db>, id: &str) {
                const STEP: &str =
                    concat!("insert into steps select ", $placeholder, ", _version from users where id = 'shared'");
                sqlx::query(STEP).bind(id).execute(&mut **transaction).await.expect("it is noted");
            }
        }
    };
}

stepping!(OnPostgres, "begin", "$1");
stepping!(OnMySql, "begin", "?");
stepping!(OnSqlite, "begin immediate", "?1");
