-- Gives leased rows up.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, $5 errors, arrays
-- Finds rows by address, or by {name}_pkey when they moved.
update {table} as row
set {set_buried}
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[], $5::text[]) as given(address, id, worker, attempt, error)
where {found} and {fence}
returning {row.id}, given.attempt
