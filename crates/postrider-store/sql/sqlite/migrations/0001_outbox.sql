-- The outbox: one row per message. Columns, types and defaults are public; any language may insert.
-- Times are microseconds since 1970 in UTC. Ids are UUIDs in lower case with hyphens.
-- `autoincrement`: a number is never given twice, so that a lease of a purged row cannot point at a newer one.
create table {table} (
  seq             integer primary key autoincrement,
  id              text    not null default ({uuid_v7}),
  namespace       text    not null,
  topic           text    not null,
  key             text    null,
  tenant_id       text    null,
  dedupe_key      text    null,
  payload         text    not null,
  payload_bytes   blob    null,
  headers         text    not null default '{}',
  status          text    not null default 'pending',
  attempts        integer not null default 0,
  max_attempts    integer null,
  next_attempt_at integer not null default ({now}),
  locked_by       text    null,
  locked_until    integer null,
  last_error      text    null,
  created_at      integer not null default ({now}),
  updated_at      integer not null default ({now}),
  delivered_at    integer null,
  constraint "{name}_id_check" check (id glob '{uuid_pattern}'),
  constraint "{name}_tenant_check" check (tenant_id is null or tenant_id glob '{uuid_pattern}'),
  constraint "{name}_status_check" check (status in ('pending', 'processing', 'delivered', 'dead')),
  -- A column takes values of any type where nothing is said, and one that a relay cannot read would stop it.
  constraint "{name}_text_check" check (
    typeof(namespace) = 'text' and typeof(topic) = 'text' and typeof(key) in ('text', 'null') and typeof(dedupe_key) in ('text', 'null')),
  constraint "{name}_payload_check" check (typeof(payload) = 'text' and json_valid(payload) and typeof(payload_bytes) in ('blob', 'null')),
  constraint "{name}_headers_check" check (typeof(headers) = 'text' and json_valid(headers) and json_type(headers) = 'object'),
  constraint "{name}_count_check" check (typeof(attempts) = 'integer' and typeof(max_attempts) in ('integer', 'null')),
  constraint "{name}_due_check" check (typeof(next_attempt_at) = 'integer'),
  constraint "{name}_lease_check" check (typeof(locked_until) in ('integer', 'null')),
  constraint "{name}_time_check" check (
    typeof(created_at) = 'integer' and typeof(updated_at) = 'integer' and typeof(delivered_at) in ('integer', 'null'))
);

create unique index "{name}_id_idx" on "{name}" (id);

-- Finished rows are in neither of the next three, so a claim costs the same however many there are.
create index "{name}_due_idx" on "{name}" (namespace, next_attempt_at, seq) where status = 'pending';
create index "{name}_lane_idx" on "{name}" (namespace, topic, {tenant}, next_attempt_at, seq) where status = 'pending';
create index "{name}_lease_idx" on "{name}" (locked_until) where status = 'processing';

-- For retention, and for the operator's lists. Two, because SQLite does not see that one status is among several.
create index "{name}_delivered_idx" on "{name}" (updated_at) where status = 'delivered';
create index "{name}_dead_idx" on "{name}" (updated_at) where status = 'dead';

create unique index "{name}_dedupe_idx" on "{name}" (namespace, topic, dedupe_key) where dedupe_key is not null;

-- The latest time that a relay has seen, and the newest row then: if the clock shows less, it was set back (see clock.rs).
create table {clock} (
  only integer primary key check (only = 1),
  seen integer not null,
  newest integer not null
);
insert into {clock} (only, seen, newest) values (1, 0, 0);
