-- The outbox: one row per message. Columns, types and defaults are public; any language may insert.
-- Times are UTC whatever the session's time zone is. Keys are bytes (UTF-8 by convention), so that case, accents and
-- trailing spaces make a difference. JSON is text, so that it arrives as it was written: MariaDB's JSON functions stop at
-- 32 levels, and MySQL's type re-renders numbers. The default id is a UUID version 7: 48 bits of milliseconds, then
-- version, variant and 74 random bits. A finished row has no lease, so that one index has the leases by their end and the
-- finished rows by their age: each index begins with the status, so each is written with every change of a row. Checks
-- refuse what no relay could find or read: an empty name (a length, because a comparison ignores trailing spaces), and
-- times with a year, month or day of zero, which some sessions let pass (the server's own range begins with 1000).
create table if not exists {table} (
  seq             bigint         not null auto_increment,
  id              char(36)       character set ascii collate ascii_bin not null default ({uuid_v7}),
  namespace       varchar(200)   character set ascii collate ascii_bin not null,
  topic           varchar(200)   character set ascii collate ascii_bin not null,
  `key`           varbinary(512) null,
  tenant_id       char(36)       character set ascii collate ascii_bin null,
  dedupe_key      varbinary(512) null,
  payload         longtext       character set utf8mb4 collate utf8mb4_bin not null,
  payload_bytes   longblob       null,
  headers         longtext       character set utf8mb4 collate utf8mb4_bin not null default ('{}'),
  status          varchar(16)    character set ascii collate ascii_bin not null default 'pending',
  attempts        int            not null default 0,
  max_attempts    int            null,
  next_attempt_at datetime(6)    not null default (utc_timestamp(6)),
  locked_by       char(36)       character set ascii collate ascii_bin null,
  locked_until    datetime(6)    null,
  last_error      longtext       character set utf8mb4 collate utf8mb4_bin null,
  created_at      datetime(6)    not null default (utc_timestamp(6)),
  updated_at      datetime(6)    not null default (utc_timestamp(6)),
  delivered_at    datetime(6)    null,
  primary key (seq),
  unique key {name}_id_idx (id),
  unique key {name}_dedupe_idx (dedupe_key, namespace, topic),
  key {name}_due_idx (status, namespace, next_attempt_at),
  key {name}_lane_idx (status, namespace, topic, tenant_id, next_attempt_at),
  key {name}_lease_idx (status, locked_until, updated_at),
  constraint {name}_namespace_check check (octet_length(namespace) > 0),
  constraint {name}_topic_check check (octet_length(topic) > 0),
  constraint {name}_next_attempt_check check (next_attempt_at >= timestamp '1000-01-01 00:00:00' and month(next_attempt_at) > 0 and dayofmonth(next_attempt_at) > 0),
  constraint {name}_created_check check (created_at >= timestamp '1000-01-01 00:00:00' and month(created_at) > 0 and dayofmonth(created_at) > 0),
  constraint {name}_id_check check (id regexp {uuid_pattern}),
  constraint {name}_tenant_check check (tenant_id regexp {uuid_pattern}),
  constraint {name}_status_check check (status in ('pending', 'processing', 'delivered', 'dead')),
  constraint {name}_headers_check check (json_valid(headers) and json_type(headers) = 'OBJECT')
) engine = InnoDB, row_format = dynamic, comment = 'Transactional outbox (Postrider). One row per message.'
-- next statement
-- Producers with the same dedupe key wait for each other here, in one of 8,192 rows that are always there: turns.sql
-- fills them in with every migration. Waiting in the index itself would lock the gap beside the key too, and whoever has
-- the key could not write next to it: a deadlock.
create table if not exists {turns} (
  slot smallint unsigned not null primary key
) engine = InnoDB, comment = 'Postrider: producers with the same dedupe key take turns. Holds no data.'
