-- Deletes rows whose time is past, the oldest first. There is one writer at a time, so nobody else deletes them too.
-- ?1 limit
-- Uses {name}_expires_idx, then the primary key.
delete from {table}
where (consumer, event_id) in (
  select consumer, event_id
  from {table}
  where expires_at <= {now}
  order by expires_at
  limit ?1)
