-- Finds due rows, an equal share for each lane (namespace, topic, tenant) that is in scope and has any, going round from a given lane.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 to ?8 the lane to start after (namespace, topic, tenant)
-- Uses {name}_lane_idx, with order per key {name}_key_idx, then the rows' numbers. Answers every lane looked at, at least once.
-- A lane that gets nothing, because it is of others or its first row is not due yet, is looked at and passed over.
with recursive lanes(seq, namespace, topic, tenant, gets, visited, looked_at) as (
  select row.seq, row.namespace, row.topic, coalesce(row.tenant_id, {nil}), {lane_gets}, {lane_gets}, 1
  from {table} as row
  where row.seq = {next_lane_first}
  union all
  select row.seq, row.namespace, row.topic, coalesce(row.tenant_id, {nil}), {lane_gets}, last.visited + ({lane_gets}), last.looked_at + 1
  from lanes as last cross join {table} as row
  where last.visited < {lanes_per_claim} and last.looked_at < {lanes_looked_at} and row.seq = {next_lane}
),
share(size) as materialized (
  select (?5 + max(count(*), 1) - 1) / max(count(*), 1) from lanes where gets
)
select lanes.visited, lanes.namespace, lanes.topic, lanes.tenant, row.seq, {row.size} as size, lanes.looked_at
from lanes left join {table} as row
  on lanes.gets and row.seq in (
    select head.seq from {table} as head
    where head.status = 'pending' and head.namespace = lanes.namespace and head.topic = lanes.topic
      and coalesce(head.tenant_id, {nil}) = lanes.tenant
      and head.next_attempt_at <= ?4 and head.attempts < coalesce(head.max_attempts, ?3){and_in_turn}
    order by head.next_attempt_at, head.seq
    limit (select size from share))
order by lanes.looked_at, row.next_attempt_at, row.seq
