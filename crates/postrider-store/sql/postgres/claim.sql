-- Takes eligible rows under a lease: expired leases first, then what has been due for longest, in equal shares for the namespaces in scope.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes
-- Uses {name}_lease_idx and {name}_due_idx, then the rows' addresses.
with recursive expired as materialized (
  select ctid, {size} as size, {locked} as locked_until, {seq} as seq
  from {table}
  where {processing} and {lease_over}
    and {may_try} and not {suspect}
    and {in_scope}
  order by {locked}
  limit $4::bigint
  for update skip locked
),
{namespaces},
share as materialized (
  select array_agg(namespace) as namespaces, ceil(($4::bigint - (select count(*) from expired))::numeric / nullif(count(*), 0))::bigint as size
  from (
    select namespace from namespaces where due_at <= now()
    union all
    select name from unnest($1::text[]) as name, lateral (
      select from {table} where {pending} and {namespace} = name and {due}
      order by {due_at} limit 1) as any_due) as wanted(namespace)
),
candidates as materialized (
  select 1 as turn, ctid, size, locked_until as since, seq from expired
  union all
  select 2, row.*
  from share, unnest(share.namespaces) as wanted(namespace), lateral (
    select * from (
      select ctid, {size} as size, {due_at} as since, {seq} as seq
      from {table}
      where {pending} and {namespace} = wanted.namespace and {due}
        and {may_try}
        and ($2::uuid is null or {tenant_id} = $2::uuid)
      order by {due_at}, {seq}
      limit {largest_claim}
      for update skip locked) as head
    limit share.size) as row
),
-- Mostly all of them fit, and then nothing need be sorted or added up row by row.
picked as (
  select * from unnest(case
    when (select count(*) <= $4::bigint and sum(size) <= $7::bigint from candidates) then array(select ctid from candidates)
    else array(
      select ctid from (
        select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before from candidates) as counted
      where before < $7::bigint
      order by turn, since, seq
      limit $4::bigint)
  end) with ordinality as picked(ctid, few)
)
{take}
