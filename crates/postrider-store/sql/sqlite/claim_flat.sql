-- Takes eligible rows of a table that is not indexed by namespace: expired leases first, then what has been due for longest.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 worker, ?7 lease µs, ?8 max bytes
-- Uses the table's indexes on the status and the due time, and on the lock, then the rows' numbers.
with expired as materialized (
  select {number} as seq, {size} as size, {locked} as since
  from {table}
  where {processing} and {lease_over ?4}
    and {may_try ?3} and not {suspect ?3}
    and {in_scope}
  order by {locked}
  limit ?5
),
due as materialized (
  select {number} as seq, {size} as size, {due_at} as since
  from {table}
  where {pending} and {due ?4} and {may_try ?3} and {in_scope}
  order by {due_at}, {number}
  limit (select max(?5 - count(*), 0) from expired)
),
picked as (
  select seq from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, seq, size, since from expired
      union all
      select 2, seq, size, since from due))
  where before < ?8
  order by turn, since, seq
  limit ?5
)
{take}
