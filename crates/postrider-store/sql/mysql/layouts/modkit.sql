-- The shared table of events of the layout `modkit`. Types are those of our own table: times are UTC, keys are bytes, JSON is text
-- so that it arrives as it was written. An index by lock begins with the status, because there are no partial ones.
create table if not exists {table} (
  id              char(36)       character set ascii collate ascii_bin not null,
  namespace       varchar(200)   character set ascii collate ascii_bin not null,
  topic           varchar(200)   character set ascii collate ascii_bin not null,
  tenant_id       char(36)       character set ascii collate ascii_bin null,
  dedupe_key      varbinary(512) null,
  payload         longtext       character set utf8mb4 collate utf8mb4_bin not null check (json_valid(payload)),
  status          varchar(16)    character set ascii collate ascii_bin not null,
  attempts        int            not null default 0,
  next_attempt_at datetime(6)    not null default (utc_timestamp(6)),
  locked_by       char(36)       character set ascii collate ascii_bin null,
  locked_until    datetime(6)    null,
  last_error      longtext       character set utf8mb4 collate utf8mb4_bin null,
  created_at      datetime(6)    not null default (utc_timestamp(6)),
  updated_at      datetime(6)    not null default (utc_timestamp(6)),
  primary key (id),
  unique key {name}_dedupe_idx (dedupe_key, namespace, topic),
  key {name}_status_idx (status, next_attempt_at),
  key {name}_locked_idx (status, locked_until),
  constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead'))
) engine = InnoDB, row_format = dynamic
