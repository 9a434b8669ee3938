-- Takes eligible rows under a lease: expired leases first, then what has been due for longest, in equal shares for the namespaces given.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 worker, ?7 lease µs, ?8 max bytes, ?9 namespaces with due rows (a JSON array), ?10 how many these are
-- Uses {name}_lease_idx and {name}_due_idx, then the rows' numbers.
with expired as materialized (
  select seq, {size} as size, locked_until
  from {table}
  where status = 'processing' and locked_until < ?4
    and attempts < coalesce(max_attempts, ?3) and not {suspect}
    and {in_scope}
  order by locked_until
  limit ?5
),
due as materialized (
  select row.seq, {row.size} as size, row.next_attempt_at
  from json_each(?9) as wanted cross join {table} as row
  where row.seq in (
    select seq from {table}
    where status = 'pending' and namespace = wanted.value and next_attempt_at <= ?4
      and attempts < coalesce(max_attempts, ?3)
      and (?2 is null or tenant_id = ?2)
    order by next_attempt_at, seq
    limit (select (?5 - count(*) + max(?10, 1) - 1) / max(?10, 1) from expired))
),
picked as (
  select seq from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, seq, size, locked_until as since from expired
      union all
      select 2, seq, size, next_attempt_at from due))
  where before < ?8
  order by turn, since, seq
  limit ?5
)
{take}
