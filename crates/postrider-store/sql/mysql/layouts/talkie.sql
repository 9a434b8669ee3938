-- The table of messages to Kafka of the layout `talkie`. Types are those of our own table: times are UTC, keys are bytes, JSON is text
-- so that it arrives as it was written. Indexes begin with the status, because there are no partial ones; the first is for the
-- selection of batches and for looking through what failed, the second for claims that were left behind.
create table if not exists {table} (
  id              char(36)       character set ascii collate ascii_bin not null default ({uuid_v7}),
  topic           varchar(200)   character set ascii collate ascii_bin not null,
  `key`           varbinary(512) null,
  payload_json    longtext       character set utf8mb4 collate utf8mb4_bin not null check (json_valid(payload_json)),
  idempotency_key varbinary(512) not null,
  status          varchar(16)    character set ascii collate ascii_bin not null default 'pending',
  retry_count     int            not null default 0,
  last_error      longtext       character set utf8mb4 collate utf8mb4_bin null,
  last_attempt_at datetime(6)    null,
  next_attempt_at datetime(6)    not null default (utc_timestamp(6)),
  published_at    datetime(6)    null,
  created_at      datetime(6)    not null default (utc_timestamp(6)),
  primary key (id),
  unique key {name}_topic_idempotency_key_key (topic, idempotency_key),
  key {name}_batch_idx (status, next_attempt_at),
  key {name}_left_idx (status, last_attempt_at),
  constraint {name}_status_check check (status in ('pending', 'publishing', 'published', 'failed', 'dead_lettered'))
) engine = InnoDB, row_format = dynamic
