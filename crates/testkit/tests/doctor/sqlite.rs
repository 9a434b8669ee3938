//! Mis-set SQLite files, each found and mended.

use std::path::PathBuf;

use postrider::examine::Thresholds;
use postrider::operate::Finding;
use postrider::operate::Severity::{Problem, Warning};
use postrider::{AnyStore, Connect, Message, Names, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use tempfile::TempDir;

use crate::scene::{all_fine, names, names_the_consumer, names_the_missing_version, one, sql_of};

struct OnFile {
    path: PathBuf,
    store: AnyStore,
    _directory: TempDir,
}

impl OnFile {
    async fn empty() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("shop.db");
        let options = Connect { create: true, ..Connect::default() };
        let store = AnyStore::connect(&format!("sqlite:{}", path.display()), &options).await.expect("the file is made");
        Self { path, store, _directory: directory }
    }

    async fn new() -> Self {
        let scene = Self::empty().await;
        scene.store.migrate().await.expect("the migrations run");
        scene
    }

    async fn run(&self, sql: &str) {
        let options = SqliteConnectOptions::new().filename(&self.path);
        let mut connection = SqliteConnection::connect_with(&options).await.expect("the file opens");
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect(sql);
        connection.close().await.expect("it closes");
    }

    async fn examine(&self) -> Vec<Finding> {
        self.store.examine().await.expect("examined")
    }

    async fn shows_and_mends(&self, name: &str, word: &str) {
        let finding = one(&self.examine().await, name, Problem, word);
        for sql in sql_of(&finding) {
            self.run(&sql).await;
        }
        all_fine(&self.examine().await);
    }

    /// As an application with a pool of its own would open it.
    async fn opened(&self, adapt: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> Vec<Finding> {
        let options = SqliteConnectOptions::new().filename(&self.path);
        let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let pool = SqliteStore::pool_options().connect_with(adapt(options)).await.expect("the file opens");
        SqliteStore::new(pool, Names::default()).examine().await.expect("examined")
    }
}

#[tokio::test]
async fn a_healthy_file_has_nothing_above_fine() {
    let scene = OnFile::new().await;
    scene.store.enqueue(vec![Message::json("shop", "order", &1)]).await.expect("enqueued");
    all_fine(&scene.examine().await);
    let findings = scene.opened(|options| options).await;
    all_fine(&findings);
    #[rustfmt::skip]
    assert_eq!(names(&findings), [
        "settings", "busy-timeout", "page-size", "writable", "wal-size", "file-system", "schema", "index", "claim-plan",
        "clock-set-back", "damage", "changelog-consumers",
    ]);
}

#[tokio::test]
async fn a_schema_that_is_missing_or_newer_is_found() {
    let scene = OnFile::empty().await;
    let missing = one(&scene.examine().await, "schema", Problem, "no outbox yet");
    assert_eq!(missing.fix.as_deref(), Some("run postrider migrate"));
    scene.store.migrate().await.expect("the migrations run");
    all_fine(&scene.examine().await);
    scene.run("insert into postrider_migrations (version, name) values (9999, 'newer')").await;
    one(&scene.examine().await, "schema", Problem, "9999");
}

#[tokio::test]
async fn r47_settings_that_lose_commits_or_give_up_at_once_are_found() {
    let scene = OnFile::new().await;
    one(&scene.opened(|options| options.synchronous(SqliteSynchronous::Normal)).await, "settings", Problem, "NORMAL");
    one(&scene.opened(|options| options.synchronous(SqliteSynchronous::Off)).await, "settings", Problem, "OFF");
    let short = std::time::Duration::from_millis(10);
    one(&scene.opened(|options| options.busy_timeout(short)).await, "busy-timeout", Warning, "10 ms");
    one(&scene.opened(|options| options.read_only(true)).await, "writable", Problem, "read-only");
    let other = OnFile::new().await;
    let AnyStore::Sqlite(store) = &other.store else { panic!("it is SQLite") };
    store.pool().close().await;
    one(
        &other.opened(|options| options.journal_mode(SqliteJournalMode::Delete)).await,
        "settings",
        Problem,
        "journal mode",
    );
}

#[tokio::test]
async fn small_pages_are_found_and_mended() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shop.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true).page_size(1024);
    SqliteConnection::connect_with(&options.journal_mode(SqliteJournalMode::Wal))
        .await
        .expect("it opens")
        .close()
        .await
        .expect("it closes");
    let url = format!("sqlite:{}", path.display());
    let store = AnyStore::connect(&url, &Connect::default()).await.expect("it opens");
    store.migrate().await.expect("the migrations run");
    let found = one(&store.examine().await.expect("examined"), "page-size", Warning, "1024");
    let AnyStore::Sqlite(opened) = &store else { panic!("it is SQLite") };
    opened.pool().close().await;
    let mut alone =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.expect("it opens");
    for sql in sql_of(&found) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut alone).await.expect("the fix runs");
    }
    alone.close().await.expect("it closes");
    let store = AnyStore::connect(&url, &Connect::default()).await.expect("it opens");
    all_fine(&store.examine().await.expect("examined"));
}

#[tokio::test]
async fn every_index_that_is_missing_or_wrong_is_found_and_mended() {
    let scene = OnFile::new().await;
    for suffix in ["id_idx", "due_idx", "lane_idx", "lease_idx", "delivered_idx", "dead_idx", "dedupe_idx"] {
        let index = format!("outbox_messages_{suffix}");
        scene.run(&format!("drop index {index}")).await;
        if suffix == "due_idx" {
            one(&scene.examine().await, "claim-plan", Problem, "due_idx");
        }
        scene.shows_and_mends("index", &format!("{index} is missing")).await;
        scene.run(&format!("drop index {index}; create index {index} on outbox_messages (topic)")).await;
        scene.shows_and_mends("index", &format!("{index} is about other")).await;
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_back_is_found() {
    let scene = OnFile::new().await;
    scene.store.enqueue(vec![Message::json("shop", "order", &1)]).await.expect("enqueued");
    let little = Thresholds { log_bytes: 1_000, ..Thresholds::default() };
    let examine = || async { scene.store.examine_within(&little).await.expect("examined") };
    let found = one(&examine().await, "wal-size", Warning, "-wal file");
    for sql in sql_of(&found) {
        scene.run(&sql).await;
    }
    all_fine(&examine().await);
}

#[tokio::test]
async fn r48_a_clock_that_was_set_back_is_found() {
    let scene = OnFile::new().await;
    scene.run("update postrider_clock set seen = cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 60000000").await;
    one(&scene.examine().await, "clock-set-back", Warning, "ahead of this host's clock");
}

#[tokio::test]
async fn damage_is_found() {
    let scene = OnFile::new().await;
    scene.store.enqueue(vec![Message::json("shop", "order", &1)]).await.expect("enqueued");
    let ignored = Thresholds { checked_bytes: 0, ..Thresholds::default() };
    // A row that its own constraints refuse, as a broken page would leave it.
    scene.run("pragma ignore_check_constraints = on; update outbox_messages set status = 'canary'").await;
    let found = one(&scene.examine().await, "damage", Problem, "damaged");
    assert!(!format!("{found:?}").contains("canary"));
    all_fine(&scene.store.examine_within(&ignored).await.expect("examined"));
}

#[tokio::test]
async fn a_write_lock_that_is_never_given_back_is_found() {
    let scene = OnFile::new().await;
    let options = SqliteConnectOptions::new().filename(&scene.path);
    let mut holder = SqliteConnection::connect_with(&options).await.expect("it opens");
    let transaction = holder.begin_with("begin immediate").await.expect("it locks");
    let short = std::time::Duration::from_millis(1_000);
    one(&scene.opened(|options| options.busy_timeout(short)).await, "writable", Warning, "write lock");
    transaction.rollback().await.expect("it unlocks");
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn a_consumer_of_the_changelog_that_is_held_back_is_named_and_its_error_is_not() {
    let scene = OnFile::new().await;
    scene
        .run(
            "insert into postrider_cursors (name, versionstamp, last_error, failed_since) values
               ('search', zeroblob(12), 'CANARY', 1767323045678901), ('mail', zeroblob(12), null, null)",
        )
        .await;
    names_the_consumer(&scene.examine().await);
    scene.run("update postrider_cursors set failed_since = null").await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn without_the_changelogs_version_a_relay_is_told_what_to_do() {
    let scene = OnFile::new().await;
    scene.run("drop table postrider_cursors").await;
    scene.run("delete from postrider_migrations where version = 5").await;
    names_the_missing_version(&scene.examine().await);
}
