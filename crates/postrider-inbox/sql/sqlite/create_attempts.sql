-- The newest attempt of the relay that was seen of an event, written before the consumer's transaction.
-- Times are microseconds since 1970 in UTC. Ids are UUIDs with hyphens, in either case.
-- Can be run again.
create table if not exists {attempts} (
  consumer   text    not null,
  event_id   text    not null collate nocase,
  replayed   integer not null,
  attempt    integer not null,
  expires_at integer not null default ({now} + {keep_seconds} * 1000000),
  primary key (consumer, event_id),
  constraint "{attempts_name}_id_check" check (typeof(event_id) = 'text' and length(event_id) = 36),
  constraint "{attempts_name}_time_check" check (typeof(expires_at) = 'integer')
) without rowid
