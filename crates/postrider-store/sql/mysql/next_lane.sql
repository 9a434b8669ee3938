-- Finds the next lane with pending rows, and how long until its first row is due, µs. Null comes before any tenant.
-- The lane to look after: namespace, namespace, topic, namespace, topic, tenant
-- Uses {name}_lane_idx. The three cases are three ranges of the index, in its order.
select namespace, topic, tenant_id, coalesce(timestampdiff(microsecond, {now}, next_attempt_at), 0) as due_in
from {table} force index ({name}_lane_idx)
where status = 'pending'
  and (namespace > ? or (namespace = ? and topic > ?) or (namespace = ? and topic = ? and tenant_id > ?))
order by namespace, topic, tenant_id, next_attempt_at
limit 1
