//! r37 on SQLite: a full disk fails what is written then, and nothing after there is space again.

use std::time::Duration;

use postrider::SqliteStore;
use sqlx::{AssertSqlSafe, SqliteConnection, SqlitePool};
use tokio::time::timeout;

use super::scene::{OnFile, claim, message};

const SOON: Duration = Duration::from_secs(120);

/// Lets the file have this many more pages, as seen by one connection: the limit is not in the file.
async fn limit(connection: &mut SqliteConnection, more: i64) {
    let pages: i64 = sqlx::query_scalar("pragma page_count").fetch_one(&mut *connection).await.expect("a number");
    let sql = AssertSqlSafe(format!("pragma max_page_count = {}", pages + more));
    sqlx::query(sql).execute(connection).await.expect("a limit");
}

/// Has every connection of the pool meet a full disk in the middle of a transaction.
async fn fill_up(store: &SqliteStore, pool: &SqlitePool, connections: usize) {
    let outbox = store.outbox();
    let mut taken = Vec::new();
    for _ in 0..connections {
        taken.push(pool.acquire().await.expect("a connection"));
    }
    for connection in &mut taken {
        limit(connection, 8).await;
        let mut transaction =
            sqlx::Connection::begin_with(&mut **connection, "begin immediate").await.expect("it begins");
        outbox.enqueue(&mut transaction, message()).await.expect("for one row there is space");
        let large = sqlx::query("insert into things (content) values (zeroblob(100000))");
        let error = large.execute(&mut *transaction).await.expect_err("the disk is full");
        assert!(error.to_string().contains("full"), "{error}");
        transaction.commit().await.expect_err("SQLite has rolled it back by itself");
    }
    for connection in &mut taken {
        limit(connection, 1_000_000).await;
    }
}

/// Everything works as if nothing had been.
async fn assert_sound(scene: &OnFile, pool: &SqlitePool) {
    for turn in 0..50 {
        let begun = timeout(SOON, pool.begin_with("begin immediate")).await.expect("no lock is stuck");
        begun.unwrap_or_else(|error| panic!("begin {turn}: {error}")).rollback().await.expect("it rolls back");
    }
    for _ in 0..20 {
        let mut transaction = pool.begin().await.expect("it begins");
        scene.store.outbox().enqueue(&mut transaction, message()).await.expect("there is space again");
        drop(transaction);
    }
    let other = scene.again().await;
    let begun = timeout(SOON, other.pool().begin_with("begin immediate")).await.expect("no lock is stuck");
    begun.expect("the dropped transactions are over").rollback().await.expect("it rolls back");
    assert_eq!(claim(&other, SOON).await.len(), 1, "what was committed before is there");
    let integrity: String = sqlx::query_scalar("pragma integrity_check").fetch_one(pool).await.expect("a word");
    assert_eq!(integrity, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r37_a_full_disk_spoils_no_connection_and_leaves_no_lock() {
    let scene = OnFile::new().await;
    scene.put(message()).await;
    let table = sqlx::query("create table things (content blob)");
    table.execute(scene.store.pool()).await.expect("a table");
    let pool = scene.store.pool().clone();
    fill_up(&scene.store, &pool, 4).await;
    assert_sound(&scene, &pool).await;
}
