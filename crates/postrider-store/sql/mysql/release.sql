-- Gives claims back with their attempt; without a delay the row is due as it was before.
-- Pairs of number and error or null, pairs of number and delay µs or null, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table} force index (primary)
set status = 'pending', attempts = attempts - 1, locked_by = null, locked_until = null,
    last_error = coalesce(case seq {cases} end, last_error),
    next_attempt_at = coalesce(timestampadd(microsecond, case seq {cases} end, {now}), next_attempt_at), updated_at = {now}
where {fence}
