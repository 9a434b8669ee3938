-- Whether there is something to purge, without disturbing who writes.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 finished until, µs since 1970
-- Uses {name}_{finished}_idx.
select exists (
  select 1 from {table}
  where status = '{finished}' and updated_at <= ?3
    and {in_scope})
