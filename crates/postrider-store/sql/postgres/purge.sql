-- Deletes rows that finished long ago; one caller at a time, the others delete nothing.
-- $1 namespaces or null for all, $2 tenant or null, $3 age µs, $4 limit
-- Uses {name}_finished_idx, then the rows' addresses.
with {old}
delete from {table} as row
using picked
where row.ctid = picked.ctid and {few} and {finished_row}
returning 1
