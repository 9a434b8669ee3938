-- Finds due rows among the oldest of a namespace, and of a tenant if one is given, whose allowance was lowered below the attempts they had.
-- Namespace, tenant or null twice, max attempts, limit
-- Uses {name}_due_idx. Locks nothing: sweep_lock.sql looks at them again.
select seq
from (
  select seq, attempts, max_attempts
  from {table} force index ({name}_due_idx)
  where status = 'pending' and namespace = ? and next_attempt_at <= {now} and {of_tenant}
  order by next_attempt_at, seq
  limit {largest_claim}) as head
where attempts >= coalesce(max_attempts, ?)
limit ?
