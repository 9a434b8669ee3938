//! Every driver writes in the caller's transaction, and nowhere else.

use postrider::{EnqueueError, Enqueued, Message, Outbox};
use rusqlite::TransactionBehavior;
use sea_orm::{ConnectionTrait, DatabaseConnection, TransactionTrait};
use sqlx::Connection;
use uuid::Uuid;

use super::scene::{OnFile, message};

const TENANT: Uuid = Uuid::from_u128(7);

async fn ids(scene: &OnFile) -> Vec<Uuid> {
    let rows: Vec<String> = sqlx::query_scalar("select id from outbox_messages order by seq")
        .fetch_all(scene.store.pool())
        .await
        .expect("the rows can be read");
    rows.iter().map(|id| id.parse().expect("an id")).collect()
}

fn bad() -> Message {
    Message::json("", "t", &1)
}

#[tokio::test]
async fn sqlx_commit_rollback_savepoint_duplicate_and_refusal() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let mut transaction = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let kept = outbox.enqueue(&mut transaction, message().dedupe_key("k")).await.expect("a good message");
    let again = outbox.enqueue(&mut transaction, message().dedupe_key("k")).await.expect("a duplicate is no error");
    assert_eq!(again, Enqueued::Already(kept.id()));
    assert!(matches!(outbox.enqueue(&mut transaction, bad()).await, Err(EnqueueError::Invalid { .. })));
    let mut inner = transaction.begin().await.expect("a savepoint");
    outbox.enqueue(&mut inner, message()).await.expect("a good message");
    inner.rollback().await.expect("it rolls back");
    let mut inner = transaction.begin().await.expect("a savepoint");
    let second = outbox.enqueue(&mut inner, message()).await.expect("a good message");
    inner.commit().await.expect("it commits");
    transaction.commit().await.expect("it commits");
    assert_eq!(ids(&scene).await, [kept.id(), second.id()]);
    let mut transaction = scene.store.pool().begin().await.expect("it begins");
    outbox.enqueue(&mut transaction, message()).await.expect("a good message");
    drop(transaction);
    assert_eq!(ids(&scene).await.len(), 2);
}

#[tokio::test]
async fn sea_orm_commit_rollback_savepoint_duplicate_and_refusal() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let database: DatabaseConnection = scene.store.pool().clone().into();
    let transaction = database.begin().await.expect("it begins");
    let full = message().key("k").tenant(TENANT).header("a", "b").max_attempts(3);
    let many = [full, Message::bytes("shop", "raw", "x/y", vec![0, 255]), message().dedupe_key("k")];
    let kept = outbox.enqueue_many(&transaction, many).await.expect("good messages");
    let again = outbox.enqueue(&transaction, message().dedupe_key("k")).await.expect("a duplicate is no error");
    assert_eq!(again, Enqueued::Already(kept[2].id()));
    assert!(matches!(outbox.enqueue(&transaction, bad()).await, Err(EnqueueError::Invalid { .. })));
    let inner = transaction.begin().await.expect("a savepoint");
    outbox.enqueue(&inner, message()).await.expect("a good message");
    inner.rollback().await.expect("it rolls back");
    transaction.execute_unprepared("create table things (id integer)").await.expect("it is still usable");
    transaction.commit().await.expect("it commits");
    assert_eq!(ids(&scene).await, kept.iter().map(Enqueued::id).collect::<Vec<_>>());
    let claimed = super::scene::claim(&scene.store, std::time::Duration::from_secs(9)).await;
    assert_eq!(
        (claimed[0].tenant_id, claimed[0].key.as_deref(), claimed[0].max_attempts),
        (Some(TENANT), Some("k"), Some(3))
    );
    assert_eq!(claimed[1].payload.as_bytes(), [0, 255]);
    let transaction = database.begin().await.expect("it begins");
    outbox.enqueue(&transaction, message()).await.expect("a good message");
    drop(transaction);
    assert_eq!(ids(&scene).await.len(), 3);
}

#[tokio::test]
async fn rusqlite_commit_rollback_savepoint_duplicate_and_refusal() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let mut connection = rusqlite::Connection::open(scene.file("outbox.db")).expect("it opens");
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("it begins");
    let full = message().key("k").tenant(TENANT).header("a", "b").max_attempts(3);
    let many = [full, Message::bytes("shop", "raw", "x/y", vec![0, 255]), message().dedupe_key("k")];
    let mut kept = outbox.enqueue_many_blocking(&transaction, many).expect("good messages");
    let again = outbox.enqueue_blocking(&transaction, message().dedupe_key("k")).expect("a duplicate is no error");
    assert_eq!(again, Enqueued::Already(kept[2].id()));
    assert!(matches!(outbox.enqueue_blocking(&transaction, bad()), Err(EnqueueError::Invalid { .. })));
    assert_eq!(outbox.enqueue_many_blocking(&transaction, [] as [Message; 0]).expect("nothing"), []);
    transaction.commit().expect("it commits");
    let mut transaction = connection.transaction().expect("it begins");
    let inner = transaction.savepoint().expect("a savepoint");
    outbox.enqueue_blocking(&inner, message()).expect("a good message");
    drop(inner);
    let inner = transaction.savepoint().expect("a savepoint");
    kept.push(outbox.enqueue_blocking(&inner, message()).expect("a good message"));
    inner.commit().expect("it commits");
    transaction.commit().expect("it commits");
    let transaction = connection.transaction().expect("it begins");
    outbox.enqueue_blocking(&transaction, message()).expect("a good message");
    drop(transaction);
    assert_eq!(ids(&scene).await, kept.iter().map(Enqueued::id).collect::<Vec<_>>());
    let claimed = super::scene::claim(&scene.store, std::time::Duration::from_secs(9)).await;
    assert_eq!((claimed[0].tenant_id, claimed[0].headers.get("a").map(String::as_str)), (Some(TENANT), Some("b")));
    assert_eq!(claimed[1].payload.as_bytes(), [0, 255]);
}

#[tokio::test]
async fn a_producer_that_waited_too_long_may_try_again() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let held = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let options = (*scene.store.pool().connect_options()).clone().busy_timeout(std::time::Duration::from_millis(20));
    let impatient = sqlx::SqlitePool::connect_with(options).await.expect("it opens");
    let mut transaction = impatient.begin().await.expect("it begins");
    let refused = outbox.enqueue(&mut transaction, message()).await.expect_err("somebody else writes");
    assert!(refused.is_retryable(), "{refused:?}");
    transaction.rollback().await.expect("it rolls back");
    let database: DatabaseConnection = impatient.clone().into();
    let transaction = database.begin().await.expect("it begins");
    let refused = outbox.enqueue(&transaction, message()).await.expect_err("somebody else writes");
    assert!(refused.is_retryable(), "{refused:?}");
    transaction.rollback().await.expect("it rolls back");
    let mut connection = rusqlite::Connection::open(scene.file("outbox.db")).expect("it opens");
    connection.busy_timeout(std::time::Duration::from_millis(20)).expect("a setting");
    let transaction = connection.transaction().expect("it begins");
    let refused = outbox.enqueue_blocking(&transaction, message()).expect_err("somebody else writes");
    assert!(refused.is_retryable(), "{refused:?}");
    drop(transaction);
    held.rollback().await.expect("it rolls back");
}

/// An error that was ignored may have ended the transaction, and then the message would be written for good at once.
#[tokio::test]
async fn rusqlite_a_transaction_that_sqlite_has_ended_is_refused() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let mut connection = rusqlite::Connection::open(scene.file("outbox.db")).expect("it opens");
    connection.execute("create table orders (id integer primary key on conflict rollback)", []).expect("a table");
    connection.execute("insert into orders values (1)", []).expect("an order");
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("it begins");
    transaction.execute("insert into orders values (1)", []).expect_err("it is there already");
    let refused = outbox.enqueue_blocking(&transaction, message());
    assert!(matches!(refused, Err(EnqueueError::NotInTransaction)), "{refused:?}");
    assert!(matches!(outbox.enqueue_blocking(&transaction, bad()), Err(EnqueueError::Invalid { .. })));
    drop(transaction);
    assert_eq!(ids(&scene).await, [] as [Uuid; 0]);
}

/// Reading first and writing later, while somebody else wrote in between, is what `begin immediate` avoids.
#[tokio::test]
async fn a_stale_snapshot_is_a_retryable_conflict() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let mut transaction = scene.store.pool().begin().await.expect("it begins");
    sqlx::query("select * from outbox_messages").fetch_all(&mut *transaction).await.expect("it reads");
    scene.put(message()).await;
    let refused = outbox.enqueue(&mut transaction, message()).await.expect_err("what it read is old");
    assert!(refused.is_retryable(), "{refused:?}");
}

#[tokio::test]
async fn many_messages_go_in_portions_and_are_answered_in_order() {
    let (scene, outbox) = (OnFile::new().await, Outbox::default());
    let messages: Vec<Message> = (0..1_001)
        .map(|at| if at % 3 == 0 { message().dedupe_key(format!("k{}", at % 30)) } else { message() })
        .collect();
    let own: Vec<Uuid> = messages.iter().map(Message::id).collect();
    let mut transaction = scene.store.pool().begin_with("begin immediate").await.expect("it begins");
    let answers = outbox.enqueue_many(&mut transaction, messages).await.expect("good messages");
    transaction.commit().await.expect("it commits");
    for (at, answer) in answers.iter().enumerate() {
        let first = if at % 3 == 0 { at % 30 } else { at };
        assert_eq!(answer.id(), own[first], "message {at}");
        assert_eq!(answer.is_new(), first == at);
    }
}
