-- Takes due rows under a lease, an equal share for each lane (namespace, topic, tenant), going round from a given lane.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 to $10 the lane to start after (namespace, topic, tenant)
-- Uses {name}_lane_idx, with order per key {name}_key_idx, then the rows' addresses.
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
  select array_agg(namespace) as namespaces, array_agg(topic) as topics, array_agg(tenant) as tenants,
         array_agg(visited) as visits, ceil($4::numeric / nullif(count(*), 0))::bigint as size
  from lanes
  where ($1::text[] is null or namespace = any ($1::text[])) and ($2::uuid is null or tenant = $2::uuid)
),
due as materialized (
  select row.*, lane.visited
  from share, unnest(share.namespaces, share.topics, share.tenants, share.visits) as lane(namespace, topic, tenant, visited), lateral (
    select * from (
      select ctid, {size} as size, next_attempt_at, seq
      from {table}{as_mine}
      where status = 'pending' and namespace = lane.namespace and topic = lane.topic and {tenant} = lane.tenant
        and next_attempt_at <= now() and attempts < coalesce(max_attempts, $3::int){and_in_turn}
      order by next_attempt_at, seq
      limit {largest_claim}
      for update skip locked) as head
    limit share.size) as row
),
picked as materialized (
  select ctid, visited, visited as few from (
    select *, sum(size) over (order by visited, next_attempt_at, seq rows unbounded preceding) - size as before
    from due) as counted
  where before < $7::bigint
  order by visited, next_attempt_at, seq
  limit $4::bigint
),
taken as (
  {take}
)
select taken.*, last.namespace, last.topic, last.tenant
from (values (true)) as always(here)
left join taken on true
left join (
  -- Where to go on: after the last lane that got something if the claim was cut short, so that no lane loses its turn,
  -- and after the last lane looked at if there may be more.
  select * from lanes
  where case when (select count(*) from picked) < (select count(*) from due) then visited <= (select max(visited) from picked)
             else (select count(*) from lanes) = {lanes_per_claim} end
  order by visited desc limit 1) as last on true
