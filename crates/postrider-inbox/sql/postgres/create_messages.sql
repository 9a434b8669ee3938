-- The inbox: one row per processed event and consumer. Columns, types and defaults are public; any language may insert.
-- No parameters
-- Can be run again.
create table if not exists {messages} (
  consumer     text        collate "C" not null,
  event_id     uuid        not null,
  processed_at timestamptz not null default now(),
  expires_at   timestamptz not null default now() + interval '{keep_seconds} seconds',
  constraint "{messages_name}_pkey" primary key (consumer, event_id)
)
