-- Finds due rows among the oldest whose allowance was lowered below the attempts they had, in a table that is not indexed by namespace.
-- The scope, max attempts, limit
-- Uses the table's index on the status and the due time. Locks nothing: sweep_lock.sql looks at them again.
select head.number
from (
  select {row_key} as number, {attempts} as attempts, {max_attempts} as max_attempts
  from {table}
  where {pending} and {due} and {raw_id} is not null
    {in_scope}
  order by {due_at}, {number}
  limit {largest_claim}) as head
where head.attempts >= coalesce(head.max_attempts, ?)
limit ?
