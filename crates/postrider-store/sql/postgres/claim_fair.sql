-- Takes due rows under a lease, an equal share for each lane (namespace, topic, tenant) that is in scope and has any, going round from a given lane.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 to $10 the lane to start after (namespace, topic, tenant)
-- Uses {name}_lane_idx, with order per key {name}_key_idx, then the rows' addresses.
-- A lane that gets nothing, because it is of others or its first row is not due yet, is looked at and passed over.
with recursive lanes(namespace, topic, tenant, gets, visited, looked_at) as (
  select next.*, next.gets::int, 1 from ({lane_after_given}) as next
  union all
  select next.*, last.visited + next.gets::int, last.looked_at + 1
  from lanes as last, lateral ({lane_after_last}) as next
  where last.visited < {lanes_per_claim} and last.looked_at < {lanes_looked_at}
),
share as materialized (
  select array_agg(namespace) as namespaces, array_agg(topic) as topics, array_agg(tenant) as tenants,
         array_agg(visited) as visits, ceil($4::numeric / nullif(count(*), 0))::bigint as size
  from lanes
  where gets
),
due as materialized (
  select row.*, lane.visited
  from share, unnest(share.namespaces, share.topics, share.tenants, share.visits) as lane(namespace, topic, tenant, visited), lateral (
    select * from (
      select ctid, {size} as size, {due_at} as next_attempt_at, {seq} as seq
      from {table}{as_mine}
      where {waiting} and {in_lane}
        and {due} and {may_try}{and_in_turn}
      -- All columns of the index: under row-level security the planner does not see that the lane's are constant.
      order by {lane_order}, {due_at}, {tie}
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
             else (select max(visited) = {lanes_per_claim} or max(looked_at) = {lanes_looked_at} from lanes) end
  order by looked_at desc limit 1) as last on true
