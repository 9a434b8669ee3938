-- Puts leased rows back for a later attempt.
-- ?1 now, then number, id, worker, attempt, delay µs and error of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with given(seq, id, worker, attempt, delay, error) as (values {items})
update {table} as row
set status = 'pending', locked_by = null, locked_until = null, last_error = given.error,
    next_attempt_at = ?1 + given.delay, updated_at = ?1
from given
where {found} and {fence}
returning id, attempts, seq
