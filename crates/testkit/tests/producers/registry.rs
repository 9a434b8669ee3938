//! An outbox with an event registry takes registered events only, and the caller's transaction goes on.

use anyhow::Result;
use postrider::{Actor, EnqueueError, Event, Registry, RegistryError};
use serde::{Deserialize, Serialize};

use super::fixture::{Fixture, order};

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[tokio::test]
async fn r06_an_event_that_is_not_registered_is_refused_and_the_transaction_lives() -> Result<()> {
    let fixture = Fixture::new().await?;
    let events = Registry::new("shop")
        .with(Event::of::<OrderPlaced>("order_placed").topic("domain-events").aggregate("order").version(3))?;
    let outbox = fixture.outbox.clone().with_registry(events.clone());
    let mut transaction = fixture.pool.begin().await?;
    let refused = outbox.enqueue(&mut transaction, order(1)).await;
    assert!(
        matches!(&refused, Err(EnqueueError::NotRegistered { source: RegistryError::NoEventType, .. })),
        "{refused:?}"
    );
    let misspelt = outbox.enqueue_many(&mut transaction, [order(1).header("event-type", "order_payed")]).await;
    let said = misspelt.expect_err("not registered").to_string();
    assert!(said.contains("order_payed") && said.contains("order_placed"), "{said}");
    let message = events.message("order_placed", "order-7", &OrderPlaced { order: 7 })?;
    let id = outbox.enqueue(&mut transaction, message.actor(&Actor::new("user", "42"))).await?.id();
    transaction.commit().await?;
    assert_eq!(fixture.ids().await?, [id]);
    let row: (String, String, serde_json::Value, serde_json::Value) =
        sqlx::query_as("select topic, key, headers, payload from outbox_messages").fetch_one(&fixture.pool).await?;
    let headers = serde_json::json!({"event-type": "order_placed", "event-version": "3", "aggregate-type": "order",
                                     "actor": r#"{"type":"user","id":"42"}"#});
    assert_eq!(row, ("domain-events".into(), "order-7".into(), headers, serde_json::json!({ "order": 7 })));
    Ok(())
}
