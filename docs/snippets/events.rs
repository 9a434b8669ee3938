//! The examples of `docs/guides/events.md`.

use postrider::{Actor, Event, EventEnvelope, Outbox, Registry, RegistryError};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
}

fn events() -> Result<Registry, RegistryError> {
    Registry::new("shop")
        .with(Event::of::<OrderPlaced>("order_placed").topic("domain-events").aggregate("order").version(1))
}

async fn place(outbox: &Outbox, events: &Registry, pool: &PgPool, order: i64) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    let message = events.message("order_placed", format!("order-{order}"), &OrderPlaced { order })?;
    outbox.enqueue(&mut transaction, message.actor(&Actor::new("user", "42"))).await?;
    transaction.commit().await?;
    Ok(())
}

fn strict(outbox: Outbox, events: Registry) -> Outbox {
    outbox.with_registry(events)
}

fn read(body: &[u8]) -> Result<OrderPlaced, serde_json::Error> {
    let event: EventEnvelope<OrderPlaced> = serde_json::from_slice(body)?;
    Ok(event.data)
}
