-- Deletes rows whose time is past, the oldest first, and passes over those that somebody has locked.
-- Limit
-- Uses {name}_expires_idx, then the primary key, one look for each row.
delete from {table}
using (
  select consumer, event_id
  from {table} force index ({name}_expires_idx)
  where expires_at <= utc_timestamp(6)
  order by expires_at
  limit ?
  for update skip locked) as old
straight_join {table} force index (primary) on {table}.consumer = old.consumer and {table}.event_id = old.event_id
