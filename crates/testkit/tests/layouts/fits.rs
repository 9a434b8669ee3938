//! What a table has no place for is refused before SQL, and the caller's transaction lives on.

use postrider::layout::{Layout, preset};
use postrider::{EnqueueError, Message};
use uuid::Uuid;

use crate::scene::Scene;

/// A message with all that a preset needs but a key.
fn without_key(layout: &str) -> Message {
    let json = |namespace, topic| Message::json(namespace, topic, &serde_json::json!({"number": 1}));
    let tenant = Uuid::from_u128(0xA);
    match layout {
        "packfinderz" => json("packfinderz", "order_created").header("aggregate-type", "vendor_order"),
        "valinor" => json("channels", "slack").tenant(tenant).header("channel-message-id", tenant.to_string()),
        _ => json("outboxevent", "order").header("event-type", "placed"),
    }
}

fn key(layout: &str) -> String {
    if layout == "packfinderz" { Uuid::nil().to_string() } else { "7".to_owned() }
}

async fn refused(layout: &str, wrong: Message) {
    let scene = Scene::of(preset(layout).expect("known")).await;
    let parents = "insert into tenants values ('00000000-0000-0000-0000-00000000000a');
                   insert into channel_messages values ('00000000-0000-0000-0000-00000000000a', null)";
    scene.run(parents).await;
    let mut transaction = scene.pool.begin().await.expect("begun");
    let answer = scene.store.outbox().enqueue(&mut transaction, wrong).await;
    assert!(matches!(answer, Err(EnqueueError::Invalid { .. })), "{layout}: {answer:?}");
    let fine = without_key(layout).key(key(layout));
    scene.store.outbox().enqueue(&mut transaction, fine).await.expect("the transaction is still usable");
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn r06_a_message_without_a_key_is_refused_where_the_table_needs_one() {
    for layout in ["packfinderz", "valinor", "debezium", "debezium_keep"] {
        refused(layout, without_key(layout)).await;
    }
}

#[tokio::test]
async fn r06_what_is_longer_than_its_column_is_refused() {
    for layout in ["debezium", "debezium_keep"] {
        refused(layout, without_key(layout).key("é".repeat(256))).await;
        refused(layout, without_key(layout).key("7").header("event-type", "é".repeat(256))).await;
        let scene = Scene::of(preset(layout).expect("known")).await;
        scene.put(without_key(layout).key("é".repeat(255)).header("event-type", "é".repeat(255))).await;
    }
}

#[test]
fn a_layout_says_which_columns_must_have_a_value_and_how_long_they_are() {
    let needs = |layout: Layout| layout.key_required;
    assert!(needs(Layout::packfinderz()) && needs(Layout::valinor()) && needs(Layout::debezium()));
    assert!(!needs(Layout::talkie()) && !needs(Layout::default()));
}
