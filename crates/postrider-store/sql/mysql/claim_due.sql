-- Locks the rows of a namespace that have been due for longest.
-- Namespace, max attempts, tenant or null twice, limit
-- Uses {name}_due_idx, with order per key {name}_key_idx.
select seq, {size} as size, coalesce({micros_of} next_attempt_at), 0) as since
from {table}{as_mine} force index ({name}_due_idx)
where status = 'pending' and namespace = ? and next_attempt_at <= {now}
  and attempts < coalesce(max_attempts, ?) and {of_tenant}{and_in_turn}
order by next_attempt_at, seq
limit ?
for update skip locked
