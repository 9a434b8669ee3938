-- Marks leased rows as delivered.
-- ?1 now, then number, id, worker and attempt of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with given(seq, id, worker, attempt) as (values {items})
update {table} as row
set status = 'delivered', locked_by = null, locked_until = null, delivered_at = ?1, updated_at = ?1
from given
where {found} and {fence}
returning id, attempts, seq
