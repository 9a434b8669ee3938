-- The shared table of events of the layout `modkit`. Times are microseconds since 1970 in UTC, ids are UUIDs in lower case with
-- hyphens.
create table {table} (
  id              text    not null primary key,
  namespace       text    not null,
  topic           text    not null,
  tenant_id       text    null,
  dedupe_key      text    null,
  payload         text    not null check (json_valid(payload)),
  status          text    not null,
  attempts        integer not null default 0,
  next_attempt_at integer not null default ({now}),
  locked_by       text    null,
  locked_until    integer null,
  last_error      text    null,
  created_at      integer not null default ({now}),
  updated_at      integer not null default ({now}),
  constraint "{name}_status_check" check (status in ('pending', 'processing', 'delivered', 'dead'))
);

create index "{name}_status_idx" on "{name}" (status, next_attempt_at);
create index "{name}_locked_idx" on "{name}" (locked_until);
create unique index "{name}_dedupe_idx" on "{name}" (namespace, topic, dedupe_key) where dedupe_key is not null;
