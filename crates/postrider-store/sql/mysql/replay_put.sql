-- Puts rows that this transaction has locked back to pending with all their attempts.
-- The rows' numbers
-- Uses the primary key.
update {table} force index (primary)
set status = 'pending', attempts = 0, next_attempt_at = {now}, updated_at = {now}
where seq in ({items})
