-- Finds rows whose lease ran out after the last allowed attempt.
-- Max attempts, the scope, limit
-- Uses {name}_lease_idx. Locks nothing: sweep_lock.sql looks at them again.
select seq
from {table} force index ({name}_lease_idx)
where status = 'processing' and locked_until < {now} and attempts >= coalesce(max_attempts, ?)
  {in_scope}
order by locked_until, updated_at, seq
limit ?
