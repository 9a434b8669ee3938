//! A database on which promises could not be kept is refused, and the error says what to set.

use postrider::store::Scope;
use postrider::{Names, SqliteStore, Store, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tempfile::TempDir;

use super::scene::OnFile;

/// Opens a pool as an application would, with options of its own.
async fn store(directory: &TempDir, set: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> SqliteStore {
    let options = SqliteConnectOptions::new().filename(directory.path().join("shop.db")).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(2).connect_with(set(options)).await.expect("it opens");
    SqliteStore::new(pool, Names::default())
}

#[track_caller]
fn assert_refused(error: Result<impl std::fmt::Debug, postrider::StoreError>, advice: &str) {
    let error = error.expect_err("it must be refused");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(advice), "{error}");
}

#[tokio::test]
async fn r47_a_journal_that_makes_readers_block_is_refused_by_every_verb() {
    let directory = TempDir::new().expect("a directory");
    let store = store(&directory, |options| options.journal_mode(SqliteJournalMode::Delete)).await;
    assert_refused(store.migrate().await, "journal_mode(SqliteJournalMode::Wal)");
    assert_refused(store.stats(&Scope::all()).await, "journal_mode(SqliteJournalMode::Wal)");
    assert_refused(store.ack(&[lease()], Default::default()).await, "journal_mode(SqliteJournalMode::Wal)");
}

fn lease() -> postrider::Lease {
    let (id, worker) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    postrider::Lease { id, worker, attempt: 1, address: Default::default() }
}

#[tokio::test]
async fn r47_settings_that_are_not_power_safe_are_refused_unless_accepted() {
    let directory = TempDir::new().expect("a directory");
    let normal = store(&directory, |options| {
        options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal)
    });
    let normal = normal.await;
    assert_refused(normal.migrate().await, "synchronous(SqliteSynchronous::Full)");
    let accepted = normal.relaxed_durability(true);
    accepted.migrate().await.expect("it was accepted");
    accepted.stats(&Scope::all()).await.expect("it was accepted");
    let off =
        store(&directory, |options| options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Off));
    assert_refused(off.await.relaxed_durability(true).migrate().await, "OFF");
}

#[tokio::test]
async fn a_database_in_memory_is_refused() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("it opens");
    assert_refused(SqliteStore::new(pool, Names::default()).migrate().await, "memory");
    let error = SqliteStore::open(":memory:").await;
    assert_refused(error, "memory");
}

#[tokio::test]
async fn names_with_a_schema_are_refused() {
    let directory = TempDir::new().expect("a directory");
    let names = Names::in_schema("shop").expect("a good name");
    let options = SqliteConnectOptions::new().filename(directory.path().join("shop.db"));
    assert_refused(SqliteStore::open_with(options, names.clone()).await, "Names::unqualified");
    let scene = OnFile::new().await;
    let store = SqliteStore::new(scene.store.pool().clone(), names);
    assert_refused(store.migrate().await, "Names::unqualified");
    assert_refused(store.stats(&Scope::all()).await, "Names::unqualified");
}

#[tokio::test]
async fn open_sets_what_an_outbox_needs() {
    let scene = OnFile::new().await;
    let read = |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(scene.store.pool());
    assert_eq!(read("pragma synchronous").await.expect("a number"), 2);
    assert_eq!(read("pragma foreign_keys").await.expect("a number"), 1);
    assert!(read("pragma busy_timeout").await.expect("a number") > 0);
    let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(scene.store.pool()).await.expect("a word");
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn without_migrations_the_error_says_so_and_the_store_works_after_them() {
    let directory = TempDir::new().expect("a directory");
    let store = SqliteStore::open(directory.path().join("shop.db")).await.expect("it opens");
    let error = store.stats(&Scope::all()).await.expect_err("there is no table");
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("run the migrations"), "{error}");
    store.migrate().await.expect("the migrations run");
    store.stats(&Scope::all()).await.expect("now there is one");
}
