-- How long until the first pending row of a namespace is due, µs.
-- Namespace, tenant or null twice
-- Uses {name}_due_idx.
select coalesce(timestampdiff(microsecond, {now}, next_attempt_at), 0) as due_in
from {table} force index ({name}_due_idx)
where status = 'pending' and namespace = ? and {of_tenant}
order by next_attempt_at
limit 1
