-- Deletes rows whose time is past, the oldest first, and passes over those that somebody has locked.
-- $1 limit
-- Uses {name}_expires_idx, then the rows' addresses.
delete from {table}
where ctid = any (array(
  select ctid
  from {table}
  where expires_at <= now()
  order by expires_at
  limit $1::bigint
  for update skip locked))
