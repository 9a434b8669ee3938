-- The outbox: one row per message. Columns, types and defaults are public; any language may insert.

-- A UUID version 7: 48 bits of milliseconds, then version, variant and 74 random bits.
create function {uuid_v7}() returns uuid
language sql volatile parallel safe
as $$
  select encode(
    set_byte(
      overlay(
        uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6),
      6, 112 | (get_byte(uuid_send(gen_random_uuid()), 6) & 15)),
    'hex')::uuid
$$;

create table {table} (
  id              uuid        not null default {uuid_v7}(),
  -- each connection takes a hundred numbers at a time, so that producers do not queue for them: the order of the
  -- numbers is the order of writing within a transaction, and between transactions only roughly
  seq             bigint      not null generated always as identity (cache 100),
  namespace       text        collate "C" not null,
  topic           text        collate "C" not null,
  key             text        collate "C" null,
  tenant_id       uuid        null,
  dedupe_key      text        collate "C" null,
  payload         jsonb       not null,
  payload_bytes   bytea       null,
  headers         jsonb       not null default '{}',
  status          text        collate "C" not null default 'pending',
  attempts        int         not null default 0,
  max_attempts    int         null,
  next_attempt_at timestamptz not null default now(),
  locked_by       uuid        null,
  locked_until    timestamptz null,
  last_error      text        null,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  delivered_at    timestamptz null,
  constraint {name}_pkey primary key (id),
  constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead')),
  constraint {name}_headers_check check (jsonb_typeof(headers) = 'object')
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

comment on table {table} is 'Transactional outbox (Postrider). One row per message.';

-- Finished rows are in neither of the next three, so a claim costs the same however many there are.
create index {name}_due_idx on {table} (namespace, next_attempt_at, seq) where status = 'pending';
create index {name}_lane_idx on {table}
  (namespace, topic, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), next_attempt_at, seq)
  where status = 'pending';
create index {name}_lease_idx on {table} (locked_until) where status = 'processing';

-- For retention, and for the operator's lists.
create index {name}_finished_idx on {table} (status, updated_at) where status in ('delivered', 'dead');

create unique index {name}_dedupe_idx on {table} (namespace, topic, dedupe_key) where dedupe_key is not null;
