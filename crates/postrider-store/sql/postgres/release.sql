-- Gives claims back with their attempt; without a delay the row is due as it was before.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, $5 delays µs, $6 errors or nulls, arrays
-- Finds rows by address, or by {name}_pkey when they moved.
update {table} as row
set {set_released}
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::text[]) as given(address, id, worker, attempt, delay, error)
where {found} and {fence}
returning {row.id}, given.attempt
