-- Deletes rows that finished long ago. There is one writer at a time, so nobody else deletes them too.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 finished until, µs since 1970, ?4 limit
-- Uses {name}_{finished}_idx, then the rows' numbers.
delete from {table}
where seq in (
  select seq
  from {table}
  where status = '{finished}' and updated_at <= ?3
    and {in_scope}
  order by updated_at
  limit ?4)
returning 1
