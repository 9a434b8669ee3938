-- Buries rows whose attempts are spent: leases that ran out, and due rows whose allowance was lowered, among the oldest and the first of these rows' keys.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx, then the rows' addresses. Answers nothing but whether suspects wait if nobody is buried.
with recursive crashed as materialized (
  select ctid, attempts as few
  from {table}
  where status = 'processing' and locked_until < now()
    and attempts >= coalesce(max_attempts, $3::int)
    and {in_scope}
  order by locked_until
  limit $4::bigint
  for update skip locked
),
{namespaces},
front as materialized (
  select wanted.namespace, row.*
  from unnest(array(select namespace from namespaces union all select unnest($1::text[]))) as wanted(namespace), lateral (
    select ctid, key, attempts, max_attempts, tenant_id
    from {table}
    where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
    order by next_attempt_at, seq
    limit {largest_claim}) as row
),
-- The keys of rows that may be waiting for one behind them all, which would never be found otherwise: with order per key
-- those that wait do not go away.
keys as materialized (
  select namespace, key, min(attempts) as few
  from front
  where key is not null and namespace in (select namespace from front group by namespace having count(*) >= {largest_claim})
  group by namespace, key
),
spent as materialized (
  select ctid, attempts as few
  from (
    select ctid, attempts, max_attempts, tenant_id from front
    union all
    select first.ctid, first.attempts, first.max_attempts, first.tenant_id
    from keys as picked, lateral (
      select ctid, attempts, max_attempts, tenant_id, next_attempt_at
      from {table} as row
      where row.namespace = picked.namespace and row.key = picked.key and row.status = 'pending'
      order by row.seq
      limit 1) as first
    where {few} and first.next_attempt_at <= now()) as row
  where row.attempts >= coalesce(row.max_attempts, $3::int) and ($2::uuid is null or row.tenant_id = $2::uuid)
  limit $4::bigint
),
buried as (
  update {table} as row
  set status = 'dead', locked_by = null, locked_until = null, updated_at = now(),
      last_error = case when status = 'pending' then coalesce(last_error || ' ', '') || '(given up: all ' || attempts || ' attempts are spent)'
        else 'delivery unknown: the worker of the last allowed attempt (' || attempts || ') stopped before it said how the attempt ended' end
  from (select * from crashed union all select * from spent) as picked
  where row.ctid = picked.ctid and {few}
    and (status = 'processing' and locked_until < now() or status = 'pending' and next_attempt_at <= now())
    and attempts >= coalesce(max_attempts, $3::int)
  returning row.id
)
select buried.id, waiting.suspects
from (
  select exists (
    select from {table}
    where status = 'processing' and locked_until < now()
      and attempts < coalesce(max_attempts, $3::int) and {suspect}
      and {in_scope}) as suspects) as waiting
left join buried on true
