-- How long until the next pending row of a namespace is due, µs, of those that were not for longer than given.
-- Namespace, tenant or null twice, since µs
-- Uses {name}_due_idx.
select coalesce(timestampdiff(microsecond, {now}, next_attempt_at), 0) as due_in
from {table} force index ({name}_due_idx)
where status = 'pending' and namespace = ? and {of_tenant} and next_attempt_at >= timestampadd(microsecond, -?, {now})
order by next_attempt_at
limit 1
