//! Producers that use SeaORM on MySQL.

use postrider::Enqueued;
use sea_orm::{ConnectOptions, TransactionTrait};
use uuid::Uuid;

use crate::scene::{OnMySql, message};

#[tokio::test]
async fn a_sea_orm_transaction_writes_messages_and_learns_of_duplicates() {
    let scene = OnMySql::new().await;
    let outbox = scene.store.outbox();
    let mut options = ConnectOptions::new(scene.database.url());
    options.max_connections(2).sqlx_logging(false);
    let connection = sea_orm::Database::connect(options).await.expect("it answers");
    let lost = connection.begin().await.expect("begun");
    outbox.enqueue(&lost, message()).await.expect("enqueued");
    lost.rollback().await.expect("rolled back");
    let kept = connection.begin().await.expect("begun");
    let tenant = Uuid::new_v4();
    let rich =
        || message().key("clé 🗝").tenant(tenant).dedupe_key(format!("{tenant}/ключ")).header("x", "ü").max_attempts(4);
    let answers = outbox.enqueue_many(&kept, [rich(), rich(), message()]).await.expect("enqueued");
    assert_eq!(answers[1], Enqueued::Already(answers[0].id()));
    assert!(answers[0].is_new() && answers[2].is_new());
    kept.commit().await.expect("committed");
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 2);
    assert_eq!((claimed[0].key.as_deref(), claimed[0].tenant_id), (Some("clé 🗝"), Some(tenant)));
    assert_eq!(claimed[0].dedupe_key, Some(format!("{tenant}/ключ")));
    assert_eq!((claimed[0].headers["x"].as_str(), claimed[0].max_attempts), ("ü", Some(4)));
}
