//! What was never written strands no row: counts, due times and lock times that are null.

use std::time::Duration;

use postrider::layout::Layout;
use postrider::store::{Delivered, Scope};
use postrider::{Message, Settled, Store};
use uuid::Uuid;

use crate::scene::Scene;

async fn is_delivered(scene: &Scene, what: &str) {
    let stats = scene.store.stats(&Scope::all()).await.expect("counted");
    assert_eq!(stats.due + stats.processing, 1, "{what}: {stats:?}");
    let next = scene.store.next_due(&Scope::all()).await.expect("asked");
    assert!(next.is_none_or(|next| next.is_zero()), "{what}: it is due in {next:?}");
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 1, "{what}");
    assert_eq!(claimed[0].attempts, 1, "{what}");
    assert_eq!(scene.store.ack(&[claimed[0].lease], Delivered::Keep).await.expect("acked"), [Settled::Done], "{what}");
}

#[tokio::test]
async fn a_row_whose_count_was_never_written_is_delivered_by_row_lock() {
    let scene = Scene::of(Layout::packfinderz()).await;
    let id = scene
        .put(
            Message::json("packfinderz", "order_created", &7)
                .key(Uuid::nil().to_string())
                .header("aggregate-type", "store"),
        )
        .await;
    scene.run("alter table outbox_events alter attempt_count drop not null; update outbox_events set attempt_count = null").await;
    is_delivered(&scene, "attempt_count").await;
    assert!(scene.row(id).await["published_at"].is_string());
}

#[tokio::test]
async fn a_row_of_an_unknown_or_a_future_time_is_delivered_by_row_lock() {
    for time in ["null", "now() + interval '1 hour'"] {
        let scene = Scene::of(Layout::packfinderz()).await;
        let message = Message::json("packfinderz", "order_created", &7)
            .key(Uuid::nil().to_string())
            .header("aggregate-type", "store");
        scene.put(message).await;
        let sql = format!(
            "alter table outbox_events alter created_at drop not null; update outbox_events set created_at = {time}"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&scene.pool).await.expect("written");
        is_delivered(&scene, time).await;
    }
}

#[tokio::test]
async fn a_row_without_a_due_time_is_due() {
    for (layout, table) in [(Layout::modkit(), "modkit_outbox_events"), (Layout::talkie(), "outbox")] {
        let scene = Scene::of(layout).await;
        let namespace = scene.store.layout().namespace.column().map_or("outbox", |_| "chat");
        let id = scene.put(Message::json(namespace, "usage", &7)).await;
        let sql = format!(
            "alter table {table} alter next_attempt_at drop not null; update {table} set next_attempt_at = null"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&scene.pool).await.expect("written");
        is_delivered(&scene, table).await;
        // With its attempts spent it is given up.
        let spent =
            if table == "outbox" { "retry_count = 10, status = 'failed'" } else { "attempts = 10, status = 'pending'" };
        let sql = format!("update {table} set {spent}, next_attempt_at = null");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&scene.pool).await.expect("written");
        assert_eq!(scene.store.sweep(&Scope::all(), 10, 10).await.expect("swept").buried, [id], "{table}");
    }
}

/// Of rows whose lock time is null there are many in a table whose index of locks is not partial. A claim does not walk through them.
#[tokio::test]
async fn a_claim_does_not_walk_through_all_rows_that_nobody_has_locked() {
    let scene = Scene::of(Layout::modkit()).await;
    scene
        .run(
            "insert into modkit_outbox_events (id, namespace, topic, payload, status)
             select gen_random_uuid(), 'chat', 'usage', '7', 'delivered' from generate_series(1, 200000);
             insert into modkit_outbox_events (id, namespace, topic, payload, status)
             select gen_random_uuid(), 'chat', 'usage', '7', 'pending' from generate_series(1, 20);
             analyze modkit_outbox_events",
        )
        .await;
    assert_eq!(scene.claim().await.len(), 20);
    let began = std::time::Instant::now();
    for _ in 0..5 {
        assert!(scene.claim().await.is_empty());
    }
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}
