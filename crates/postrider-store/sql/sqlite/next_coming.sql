-- When the next row becomes eligible by the passing of time alone, of those that were not before a given time.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 the time
-- Uses {name}_due_idx and {name}_lease_idx.
with recursive {namespaces}
select min(due_at) from (
  select (
    select next_attempt_at from {table} as row
    where row.status = 'pending' and row.namespace = wanted.namespace and (?2 is null or row.tenant_id = ?2)
      and row.next_attempt_at >= ?3
    order by next_attempt_at limit 1) as due_at
  from wanted
  union all
  select * from (
    select locked_until from {table} where status = 'processing' and locked_until >= ?3 and {in_scope}
    order by locked_until limit 1))
