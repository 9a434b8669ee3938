-- Puts leased rows back for a later attempt.
-- now, then number, id, worker, attempt, delay µs and error of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with moment(now) as (select ?),
given(seq, id, worker, attempt, delay, error) as (values {items})
update {table} as row
set {row.set_nacked (select now from moment)}
from given
where {found} and {fence}
returning {id}, {attempts}, {number}
