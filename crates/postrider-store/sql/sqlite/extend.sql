-- Renews leases that are still ours.
-- ?1 now, ?2 lease µs, then number, id, worker and attempt of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with given(seq, id, worker, attempt) as (values {items})
update {table} as row
set locked_until = ?1 + ?2, updated_at = ?1
from given
where {found} and {fence}
returning id, attempts, seq
