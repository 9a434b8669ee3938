-- The inbox: one row per processed event and consumer. Columns, types and defaults are public; any language may insert.
-- Times are UTC whatever the session's time zone is. Ids are UUIDs with hyphens, in either case.
-- Can be run again.
create table if not exists {messages} (
  consumer     varchar(200) character set ascii collate ascii_bin        not null,
  event_id     char(36)     character set ascii collate ascii_general_ci not null,
  processed_at datetime(6)  not null default (utc_timestamp(6)),
  expires_at   datetime(6)  not null default (utc_timestamp(6) + interval {keep_seconds} second),
  primary key (consumer, event_id),
  key {messages_name}_expires_idx (expires_at),
  constraint {messages_name}_id_check check (octet_length(event_id) = 36)
) engine = InnoDB
