-- Buries rows that this transaction has locked. The error comes first: what is set before it would be seen by it.
-- The rows' numbers
-- Uses the primary key.
update {table} force index (primary)
set last_error = case when status = 'pending'
      then concat(coalesce(concat(last_error, ' '), ''), '(given up: all ', attempts, ' attempts are spent)')
      else concat('delivery unknown: the worker of the last allowed attempt (', attempts, ') stopped before it said how the attempt ended') end,
    status = 'dead', locked_by = null, locked_until = null, updated_at = {now}
where seq in ({items})
