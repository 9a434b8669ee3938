-- The shared table of events of the layout `modkit`, as its owners describe it.
create table {table} (
  id              uuid        not null,
  namespace       text        not null,
  topic           text        not null,
  tenant_id       uuid        null,
  dedupe_key      text        null,
  payload         jsonb       not null,
  status          text        not null,
  attempts        int         not null default 0,
  next_attempt_at timestamptz not null default now(),
  locked_by       uuid        null,
  locked_until    timestamptz null,
  last_error      text        null,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  constraint {name}_pkey primary key (id),
  constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead'))
);

create index {name}_status_idx on {table} (status, next_attempt_at);
create index {name}_locked_idx on {table} (locked_until);
create unique index {name}_dedupe_idx on {table} (namespace, topic, dedupe_key) where dedupe_key is not null;
