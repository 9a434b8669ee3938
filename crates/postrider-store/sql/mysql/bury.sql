-- Gives leased rows up.
-- Pairs of number and error, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table} force index (primary)
set status = 'dead', locked_by = null, locked_until = null, last_error = case seq {cases} end, updated_at = {now}
where {fence}
