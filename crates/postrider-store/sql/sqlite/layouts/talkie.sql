-- The table of messages to Kafka of the layout `talkie`. Times are microseconds since 1970 in UTC, ids are UUIDs in lower case with
-- hyphens.
create table {table} (
  id              text    not null default ({uuid_v7}) primary key,
  topic           text    not null,
  key             text    null,
  payload_json    text    not null check (json_valid(payload_json)),
  idempotency_key text    not null,
  status          text    not null default 'pending',
  retry_count     integer not null default 0,
  last_error      text    null,
  last_attempt_at integer null,
  next_attempt_at integer not null default ({now}),
  published_at    integer null,
  created_at      integer not null default ({now}),
  constraint "{name}_status_check" check (status in ('pending', 'publishing', 'published', 'failed', 'dead_lettered')),
  constraint "{name}_topic_idempotency_key_key" unique (topic, idempotency_key)
);

-- For the selection of batches, for claims that were left behind, and for looking through what failed.
create index "{name}_batch_idx" on "{name}" (next_attempt_at) where status in ('pending', 'failed');
create index "{name}_left_idx" on "{name}" (last_attempt_at) where status = 'publishing';
create index "{name}_dlq_idx" on "{name}" (next_attempt_at) where status in ('failed', 'dead_lettered');
