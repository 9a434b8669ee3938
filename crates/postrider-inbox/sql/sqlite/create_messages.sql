-- The inbox: one row per processed event and consumer. Columns, types and defaults are public; any language may insert.
-- Times are microseconds since 1970 in UTC. Ids are UUIDs with hyphens, in either case.
-- Can be run again.
create table if not exists {messages} (
  consumer     text    not null,
  event_id     text    not null collate nocase,
  processed_at integer not null default ({now}),
  expires_at   integer not null default ({now} + {keep_seconds} * 1000000),
  primary key (consumer, event_id),
  constraint "{messages_name}_id_check" check (typeof(event_id) = 'text' and length(event_id) = 36),
  constraint "{messages_name}_time_check" check (typeof(processed_at) = 'integer' and typeof(expires_at) = 'integer')
) without rowid
