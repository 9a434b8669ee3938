-- Marks leased rows as delivered.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, arrays
-- Finds rows by address, or by {name}_pkey when they moved.
update {table} as row
set {set_acked}
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where {found} and {fence}
returning {row.id}, given.attempt
