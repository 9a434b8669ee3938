-- Finds the next namespace with pending rows, and how long until its first row is due, µs.
-- The namespace to look after
-- Uses {name}_due_idx. Called in a loop: with a constant to begin at, each look is one step in the index.
select namespace, coalesce(timestampdiff(microsecond, {now}, next_attempt_at), 0) as due_in
from {table} force index ({name}_due_idx)
where status = 'pending' and namespace > ?
order by namespace, next_attempt_at
limit 1
