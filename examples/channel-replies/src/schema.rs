//! The tables and who sees them. The application's role sees the rows of one tenant, which each transaction names; the relay's role
//! sees all replies and nothing else. Row-level security is forced, so that it holds for the tables' owner too.

use anyhow::{Context, Result};
use postrider::PostgresStore;
use postrider::layout::Layout;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use uuid::Uuid;

/// The application's own tables. Terminal words follow `accepted`, which is written on the way in, with whose turn it is and since
/// when.
const CHANNELS: &str = "
create table tenants (id uuid primary key);
create table channel_messages (
  id                  uuid primary key,
  tenant_id           uuid not null references tenants (id) on delete cascade,
  provider            text not null,
  provider_message_id text not null,
  sender_id           text not null,
  correlation_id      text not null,
  status              text not null check (status in ('accepted', 'executed', 'denied_policy', 'dispatch_failed')),
  reservation         uuid not null,
  reserved_at         timestamptz not null default now(),
  unique (tenant_id, provider, provider_message_id)
);
alter table channel_messages enable row level security;
create policy channel_messages_tenant_isolation on channel_messages
  using (tenant_id = nullif(current_setting('app.current_tenant_id', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('app.current_tenant_id', true), '')::uuid);
";

/// Two roles. The migration of the outbox has its tenants' policy; the relay has one of its own.
const ROLES: &str = "
create role {app} login;
create role {relay} login;
grant select on tenants to {app};
grant select, insert, update on channel_messages to {app};
grant select, insert on channel_outbox to {app};
grant select, update on channel_outbox to {relay};
alter table channel_messages force row level security;
alter table channel_outbox force row level security;
create policy channel_outbox_relay on channel_outbox to {relay} using (true) with check (true);
";

/// Makes the tables and the roles, as their owner. The names of the roles are our own, not anybody's input.
pub async fn prepare(owner: &PgPool, app: &str, relay: &str) -> Result<()> {
    sqlx::raw_sql(CHANNELS).execute(owner).await.context("cannot make the tables of channels")?;
    let store = PostgresStore::with_layout(owner.clone(), Layout::valinor())?;
    store.migrate().await.context("cannot make the table channel_outbox")?;
    let roles = ROLES.replace("{app}", app).replace("{relay}", relay);
    sqlx::raw_sql(AssertSqlSafe(roles)).execute(owner).await.context("cannot make the roles")?;
    Ok(())
}

/// A transaction of one tenant. The setting ends with the transaction, so a pooled connection never carries it on.
pub async fn begin_as(pool: &PgPool, tenant: Uuid) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let set = sqlx::query("select set_config('app.current_tenant_id', $1, true)").bind(tenant.to_string());
    set.execute(&mut *transaction).await?;
    Ok(transaction)
}
