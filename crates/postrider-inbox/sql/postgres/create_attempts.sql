-- The newest attempt of the relay that was seen of an event, written before the consumer's transaction.
-- No parameters
-- Can be run again.
create table if not exists {attempts} (
  consumer   text        collate "C" not null,
  event_id   uuid        not null,
  replayed   bigint      not null,
  attempt    bigint      not null,
  expires_at timestamptz not null default now() + interval '{keep_seconds} seconds',
  constraint "{attempts_name}_pkey" primary key (consumer, event_id)
)
