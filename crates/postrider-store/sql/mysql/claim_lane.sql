-- Locks the rows of a lane that have been due for longest.
-- Namespace, topic, tenant or null, max attempts, limit
-- Uses {name}_lane_idx, with order per key {name}_key_idx.
select seq, {size} as size, coalesce({micros_of} next_attempt_at), 0) as since
from {table}{as_mine} force index ({name}_lane_idx)
where status = 'pending' and namespace = ? and topic = ? and tenant_id <=> ? and next_attempt_at <= {now}
  and attempts < coalesce(max_attempts, ?){and_in_turn}
order by next_attempt_at, seq
limit ?
for update skip locked
