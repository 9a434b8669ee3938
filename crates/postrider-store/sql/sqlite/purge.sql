-- Deletes rows that finished long ago. There is one writer at a time, so nobody else deletes them too.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 finished until, µs since 1970, ?4 limit
-- Uses the index on finished rows, then the rows' numbers.
delete from {table}
where {number} in (
  select {number}
  from {table}
  where {finished} and {touched} <= ?3
    and {in_scope}
  order by {touched}
  limit ?4)
returning 1
