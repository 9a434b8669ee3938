-- Finds rows whose lease ran out after the last allowed attempt.
-- Max attempts, the scope, limit
-- Uses {name}_lease_idx. Locks nothing: sweep_lock.sql looks at them again.
select {row_key}
from {table}{by_lease}
where {processing} and {lease_over} and {spent}
  {in_scope}
order by {lease_order}
limit ?
