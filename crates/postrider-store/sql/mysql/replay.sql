-- Puts messages that this transaction has locked back to pending with all their attempts.
-- The rows' numbers
-- Uses the primary key.
update {table} force index (primary)
set status = 'pending', attempts = 0, next_attempt_at = {now}, locked_by = null, locked_until = null, updated_at = {now},
    headers = json_set(headers, '$."{replayed}"', cast({times_replayed} + 1 as char))
where seq in ({items})
