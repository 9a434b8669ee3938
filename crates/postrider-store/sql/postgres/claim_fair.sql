-- Takes due rows under a lease, an equal share for each lane (namespace, topic, tenant), going round from a given lane.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 to $10 the lane to start after (namespace, topic, tenant)
-- Uses {name}_lane_idx, then the rows' addresses.
with recursive lanes(namespace, topic, tenant, visited) as (
  (select namespace, topic, {tenant}, 1 from {table}
   where status = 'pending' and (namespace, topic, {tenant}) > ($8::text, $9::text, $10::uuid)
   order by namespace, topic, {tenant} limit 1)
  union all
  select next.*, last.visited + 1 from lanes as last, lateral (
    select namespace, topic, {tenant} from {table}
    where status = 'pending' and (namespace, topic, {tenant}) > (last.namespace, last.topic, last.tenant)
    order by namespace, topic, {tenant} limit 1) as next
  where last.visited < {lanes_per_claim}
),
share as materialized (
  select namespace, topic, tenant, ceil($4::numeric / count(*) over ())::bigint as size
  from lanes
  where ($1::text[] is null or namespace = any ($1::text[])) and ($2::uuid is null or tenant = $2::uuid)
),
due as materialized (
  select row.ctid, row.size
  from share, lateral (
    select ctid, {size} as size
    from {table}
    where status = 'pending' and namespace = share.namespace and topic = share.topic and {tenant} = share.tenant
      and next_attempt_at <= now() and attempts < coalesce(max_attempts, $3::int)
    order by next_attempt_at, seq
    limit share.size
    for update skip locked) as row
),
picked as materialized (
  select ctid from (select ctid, sum(size) over (rows unbounded preceding) - size as before from due) as counted
  where before < $7::bigint
  limit $4::bigint
)
taken as (
  update {table} as row
  set status = 'processing', attempts = attempts + 1, locked_by = $5::uuid,
      locked_until = now() + $6::bigint * interval '1 microsecond', updated_at = now()
  where row.ctid = any (array(select ctid from picked))
  returning {claimed}
)
select last.namespace as lane_namespace, last.topic as lane_topic, last.tenant as lane_tenant, taken.*
from (select * from lanes order by visited desc limit 1) as last left join taken on true
