-- Gives leased rows up.
-- now, then number, id, worker, attempt and error of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with moment(now) as (select ?),
given(seq, id, worker, attempt, error) as (values {items})
update {table} as row
set {row.set_buried (select now from moment)}
from given
where {found} and {fence}
returning {id}, {attempts}, {number}
