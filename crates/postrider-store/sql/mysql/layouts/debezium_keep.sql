-- Columns that the outbox event router's table needs so that delivered rows can stay. All have defaults: producers need not know them.
-- One statement, so that it is done or not.
alter table {table}
  add column status          varchar(16) character set ascii collate ascii_bin not null default 'pending',
  add column attempts        int         not null default 0,
  add column next_attempt_at datetime(6) not null default (utc_timestamp(6)),
  add column locked_by       char(36)    character set ascii collate ascii_bin null,
  add column locked_until    datetime(6) null,
  add column last_error      longtext    character set utf8mb4 collate utf8mb4_bin null,
  add column created_at      datetime(6) not null default (utc_timestamp(6)),
  add column updated_at      datetime(6) not null default (utc_timestamp(6)),
  add column delivered_at    datetime(6) null,
  add constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead')),
  add key {name}_due_idx (status, next_attempt_at),
  add key {name}_lease_idx (status, locked_until),
  add key {name}_finished_idx (status, updated_at)
