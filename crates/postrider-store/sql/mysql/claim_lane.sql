-- Locks the rows of a lane that have been due for longest.
-- Namespace, topic, tenant or null, max attempts, limit
-- Uses {name}_lane_idx.
select seq, {size} as size, coalesce({micros_of} next_attempt_at), 0) as since
from {table} force index ({name}_lane_idx)
where status = 'pending' and namespace = ? and topic = ? and tenant_id <=> ? and next_attempt_at <= {now}
  and attempts < coalesce(max_attempts, ?)
order by next_attempt_at, seq
limit ?
for update skip locked
