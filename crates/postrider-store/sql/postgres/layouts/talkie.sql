-- The table of messages to Kafka of the layout `talkie`.
create table {table} (
  id              uuid        not null default gen_random_uuid(),
  topic           text        not null,
  key             text        null,
  payload_json    jsonb       not null,
  idempotency_key text        not null,
  status          text        not null default 'pending',
  retry_count     int         not null default 0,
  last_error      text        null,
  last_attempt_at timestamptz null,
  next_attempt_at timestamptz not null default now(),
  published_at    timestamptz null,
  created_at      timestamptz not null default now(),
  constraint {name}_pkey primary key (id),
  constraint {name}_status_check check (status in ('pending', 'publishing', 'published', 'failed', 'dead_lettered')),
  constraint {name}_topic_idempotency_key_key unique (topic, idempotency_key)
);

-- For the selection of batches, for claims that were left behind, and for looking through what failed.
create index {name}_batch_idx on {table} (next_attempt_at) where status in ('pending', 'failed');
create index {name}_left_idx on {table} (last_attempt_at) where status = 'publishing';
create index {name}_dlq_idx on {table} (next_attempt_at) where status in ('failed', 'dead_lettered');
