-- Gives leased rows up.
-- ?1 now, then number, id, worker, attempt and error of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with given(seq, id, worker, attempt, error) as (values {items})
update {table} as row
set status = 'dead', locked_by = null, locked_until = null, last_error = given.error, updated_at = ?1
from given
where {found} and {fence}
returning id, attempts, seq
