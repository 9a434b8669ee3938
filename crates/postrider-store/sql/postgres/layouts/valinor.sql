-- The table of channel replies of the layout `valinor`. The tables of tenants and of channel messages are the application's own,
-- and must be there.
create table {table} (
  id                 uuid        not null default gen_random_uuid(),
  tenant_id          uuid        not null references {schema}.tenants (id) on delete cascade,
  channel_message_id uuid        not null references {schema}.channel_messages (id) on delete cascade,
  provider           text        not null,
  recipient_id       text        not null,
  payload            jsonb       not null,
  status             text        not null,
  attempt_count      int         not null default 0,
  max_attempts       int         not null default 5,
  next_attempt_at    timestamptz not null default now(),
  last_error         text        null,
  locked_at          timestamptz null,
  sent_at            timestamptz null,
  created_at         timestamptz not null default now(),
  updated_at         timestamptz not null default now(),
  constraint {name}_pkey primary key (id),
  constraint {name}_status_check check (status in ('pending', 'sending', 'sent', 'dead'))
);

create index {name}_tenant_idx on {table} (tenant_id, status, next_attempt_at);
create index {name}_active_idx on {table} (status, next_attempt_at) where status in ('pending', 'sending');
create index {name}_message_idx on {table} (channel_message_id);

-- A tenant sees its own rows. An empty setting is no tenant and no error. The relay needs a policy of its own.
alter table {table} enable row level security;
create policy {name}_tenant_isolation on {table}
  using (tenant_id = nullif(current_setting('app.current_tenant_id', true), '')::uuid)
  with check (tenant_id = nullif(current_setting('app.current_tenant_id', true), '')::uuid);
