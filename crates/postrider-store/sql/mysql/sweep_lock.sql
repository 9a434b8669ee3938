-- Locks the rows that a sweep found, if they are still to be buried and nobody else has them.
-- The rows' numbers, max attempts
-- Uses the primary key.
select seq, id
from {table} force index (primary)
where seq in ({items}) and attempts >= coalesce(max_attempts, ?)
  and ((status = 'processing' and locked_until < {now}) or (status = 'pending' and next_attempt_at <= {now}))
for update skip locked
