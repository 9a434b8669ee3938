-- Gives claims back with their attempt; without a delay the row is due as it was before.
-- now, then number, id, worker, attempt, delay µs and error or null of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx.
with moment(now) as (select ?),
given(seq, id, worker, attempt, delay, error) as (values {items})
update {table} as row
set {row.set_released (select now from moment)}
from given
where {found} and {fence}
returning {id}, {attempts} + 1, {number}
