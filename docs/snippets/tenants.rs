//! The examples of `docs/guides/tenants.md`.

use postrider::{Message, Outbox, PostgresStore, Roles, TenantProtection, tenant};
use sqlx::PgPool;
use uuid::Uuid;

async fn place(pool: &PgPool, outbox: &Outbox, tenant: Uuid, order: i64) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    tenant::set(&mut transaction, tenant).await?;
    let message = Message::json("shop", "order.placed", &order).tenant(tenant);
    outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?; // and the connection has no tenant any more
    Ok(())
}

async fn protect(store: &PostgresStore) -> anyhow::Result<()> {
    let roles = Roles::new("shop_app", "shop_relay", "shop_operator")?.with_reader("shop_reader")?;
    store.protect_tenants(&TenantProtection::new(roles)?.require_tenant(true)).await?;
    Ok(())
}

async fn look(store: &PostgresStore) -> anyhow::Result<()> {
    store.check_row_security().await?; // before the dispatcher runs, and from your health check
    Ok(())
}
