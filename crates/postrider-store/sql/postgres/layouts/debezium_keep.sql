-- Columns that the outbox event router's table needs so that delivered rows can stay. All have defaults: producers need not know them.
alter table {table}
  add column status          text        not null default 'pending',
  add column attempts        int         not null default 0,
  add column next_attempt_at timestamptz not null default now(),
  add column locked_by       uuid        null,
  add column locked_until    timestamptz null,
  add column last_error      text        null,
  add column created_at      timestamptz not null default now(),
  add column updated_at      timestamptz not null default now(),
  add column delivered_at    timestamptz null,
  add constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead'));

create index {name}_due_idx on {table} (next_attempt_at) where status = 'pending';
create index {name}_lease_idx on {table} (locked_until) where status = 'processing';
create index {name}_finished_idx on {table} (status, updated_at) where status in ('delivered', 'dead');
