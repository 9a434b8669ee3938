-- Finds due rows among the oldest of a namespace whose allowance was lowered below the attempts they had.
-- Namespace, max attempts, tenant or null twice, limit
-- Uses {name}_due_idx. Locks nothing: sweep_lock.sql looks at them again.
select seq
from (
  select seq, attempts, max_attempts, tenant_id
  from {table} force index ({name}_due_idx)
  where status = 'pending' and namespace = ? and next_attempt_at <= {now}
  order by next_attempt_at, seq
  limit {largest_claim}) as head
where attempts >= coalesce(max_attempts, ?) and {of_tenant}
limit ?
