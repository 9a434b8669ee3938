-- Marks leased rows as delivered.
-- now, then number, id, worker and attempt of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with moment(now) as (select ?),
given(seq, id, worker, attempt) as (values {items})
update {table} as row
set {row.set_acked (select now from moment)}
from given
where {found} and {fence}
returning {id}, {acked_attempt}, {number}
