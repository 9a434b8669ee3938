-- The newest attempt of the relay that was seen of an event, written before the consumer's transaction.
-- Times are UTC whatever the session's time zone is. Ids are UUIDs with hyphens, in either case.
-- Can be run again.
create table if not exists {attempts} (
  consumer   varchar(200) character set ascii collate ascii_bin        not null,
  event_id   char(36)     character set ascii collate ascii_general_ci not null,
  replayed   bigint       not null,
  attempt    bigint       not null,
  expires_at datetime(6)  not null default (utc_timestamp(6) + interval {keep_seconds} second),
  primary key (consumer, event_id),
  key {attempts_name}_expires_idx (expires_at),
  constraint {attempts_name}_id_check check (octet_length(event_id) = 36)
) engine = InnoDB
