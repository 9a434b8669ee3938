-- Buries rows whose attempts are spent: leases that ran out, and due rows whose allowance was lowered, among the oldest and the first of these rows' lines (namespace, tenant, key).
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx, then the rows' addresses. Answers nothing but whether suspects wait if nobody is buried.
with recursive crashed as materialized (
  select ctid, {attempts} as few
  from {table}
  where {processing} and {lease_over}
    and {spent}
    and {in_scope}
  order by {locked}
  limit $4::bigint
  for update skip locked
),
{namespaces},
front as materialized (
  select wanted.namespace, row.*
  from unnest(array(select namespace from namespaces union all select unnest($1::text[]))) as wanted(namespace), lateral (
    select ctid, {tenant} as tenant, {key} as key, {attempts} as attempts, {spent} and ($2::uuid is null or {tenant_id} = $2::uuid) as spent
    from {table}
    where {pending} and {namespace} = wanted.namespace and {due}
    order by {due_at}, {seq}
    limit {largest_claim}) as row
),
-- The lines of rows that may be waiting for one behind them all, which would never be found otherwise: with order per key
-- those that wait do not go away.
lines as materialized (
  select namespace, tenant, key, min(attempts) as few
  from front
  where key is not null and namespace in (select namespace from front group by namespace having count(*) >= {largest_claim})
  group by namespace, tenant, key
),
spent as materialized (
  select ctid, attempts as few
  from (
    select ctid, attempts, spent from front
    union all
    select first.ctid, first.attempts, first.spent
    from lines as picked, lateral (
      select ctid, {row.attempts} as attempts, {row.spent} and ($2::uuid is null or {row.tenant_id} = $2::uuid) as spent, {row.due} as due
      from {table} as row
      where {row.namespace} = picked.namespace and {row.tenant} = picked.tenant and {row.key} = picked.key and {row.pending}
      order by {row.tenant}, {row.seq}
      limit 1) as first
    where {few} and first.due) as row
  where row.spent
  limit $4::bigint
),
buried as (
  update {table} as row
  set {set_swept}
  from (select * from crashed union all select * from spent) as picked
  where row.ctid = picked.ctid and {few}
    and ({row.processing} and {row.lease_over} or {row.pending} and {row.due})
    and {row.spent}
  returning {row.id} as id
)
select buried.id, waiting.suspects
from (
  select exists (
    select from {table}
    where {processing} and {lease_over}
      and {may_try} and {suspect}
      and {in_scope}) as suspects) as waiting
left join buried on true
