-- Locks rows that claim_front.sql found, if they may be claimed and nobody else has them.
-- The rows' numbers, max attempts, tenant or null twice
-- Uses the primary key and {name}_key_idx.
select seq, {size} as size, coalesce({micros_of} next_attempt_at), 0) as since
from {table} as mine force index (primary)
where seq in ({items}) and status = 'pending' and next_attempt_at <= {now}
  and attempts < coalesce(max_attempts, ?) and {of_tenant} and {in_turn}
for update skip locked
