-- Locks rows that claim_run.sql found, if they may still be taken and nobody else has them.
-- The rows' numbers, max attempts twice
-- Uses the primary key.
select seq
from {table} force index (primary)
where seq in ({items}) and attempts < coalesce(max_attempts, ?)
  and (status = 'pending' and next_attempt_at <= {now} or status = 'processing' and locked_until < {now} and not {suspect})
for update skip locked
