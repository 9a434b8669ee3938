-- Whether there is something to purge, without disturbing who writes.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 finished until, µs since 1970
-- Uses the index on finished rows.
select exists (
  select 1 from {table}
  where {finished} and {touched} <= ?3
    and {in_scope})
