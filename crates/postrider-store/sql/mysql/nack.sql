-- Puts leased rows back for a later attempt.
-- Pairs of number and error, pairs of number and delay µs, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table} force index (primary)
set status = 'pending', locked_by = null, locked_until = null, last_error = case seq {cases} end,
    next_attempt_at = timestampadd(microsecond, case seq {cases} end, {now}), updated_at = {now}
where {fence}
