//! The shop: an order and its event are written in one transaction, or neither is.

use anyhow::{Result, ensure};
use postrider::{Actor, Outbox};
use sqlx::PgPool;
use uuid::Uuid;

use crate::events::{self, OrderCreated, OrderStateChanged};

/// The shop's database.
#[derive(Clone)]
pub struct Shop {
    /// Where orders are.
    pub pool: PgPool,
    outbox: Outbox,
}

impl Shop {
    /// Makes the table of orders. The outbox is made by its own migration.
    pub async fn open(pool: PgPool) -> Result<Self> {
        let orders = "create table if not exists orders (
            id uuid primary key, total_cents bigint not null check (total_cents > 0), state text not null)";
        sqlx::raw_sql(orders).execute(&pool).await?;
        Ok(Self { pool, outbox: events::outbox()? })
    }

    /// Places an order; answers its id and the id of its event.
    pub async fn place(&self, buyer: &str, total_cents: i64) -> Result<(Uuid, Uuid)> {
        let order = Uuid::now_v7();
        let mut transaction = self.pool.begin().await?;
        // The event first, for once: if the order is refused below, the event goes with it.
        let event = events::message(order, Some(Actor::new("user", buyer)), OrderCreated { order, total_cents });
        let event = self.outbox.enqueue(&mut transaction, event).await?.id();
        let insert = sqlx::query("insert into orders (id, total_cents, state) values ($1, $2, 'placed')");
        insert.bind(order).bind(total_cents).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok((order, event))
    }

    /// Moves an order on; answers the id of its event.
    pub async fn advance(&self, order: Uuid, state: &str) -> Result<Uuid> {
        let mut transaction = self.pool.begin().await?;
        let update = sqlx::query("update orders set state = $2 where id = $1").bind(order).bind(state);
        let changed = update.execute(&mut *transaction).await?.rows_affected();
        ensure!(changed == 1, "there is no order {order}");
        // Nobody in particular did it, so the envelope has no actor.
        let event = events::message(order, None, OrderStateChanged { order, state: state.to_owned() });
        let event = self.outbox.enqueue(&mut transaction, event).await?.id();
        transaction.commit().await?;
        Ok(event)
    }
}
